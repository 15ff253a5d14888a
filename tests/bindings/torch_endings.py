"""Errors of tutti.torch, which name ranks and both calls; and how processes end: under way, forked, killed."""

import os
import signal
import sys
import threading
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
from torch_ranks import LIMIT_S, launch, raised, run, run_all, start

import tutti.torch
from tutti import errors
from tutti.torch.lanes import Lane

GROUPS = 100


def _store(folder: str, size: int):
    return dist.FileStore(os.path.join(folder, "test"), size)


def _dtypes_differ(rank: int, size: int, folder: str) -> None:
    start(rank, size, folder)
    tensor = torch.ones(8, dtype=torch.float32 if rank == 0 else torch.float64)
    work = dist.all_reduce(tensor, async_op=True)
    raised(errors.MismatchError, work.wait, "rank 0", "rank 1", "f32", "f64", "all_reduce")
    frames = set()
    for _ in range(2):  # none of the raise before, and of what its variables hold
        try:
            work.wait()
        except errors.MismatchError as error:
            frames.add(len(traceback.extract_tb(error.__traceback__)))
    assert len(frames) == 1, frames
    raised(errors.MismatchError, lambda: dist.barrier())  # and it stays


def _sizes_differ(rank: int, size: int, folder: str) -> None:
    start(rank, size, folder)
    tensor = torch.ones(8 + rank)
    error = getattr(dist, "DistBackendError", RuntimeError)
    raised(error, lambda: dist.all_reduce(tensor), "rank 0", "rank 1", "8", "9", "all_reduce")


def _future_fails(rank: int, size: int, folder: str) -> None:
    """What is made of the future fails with the same error, in Python and in C++."""
    start(rank, size, folder)
    future = dist.all_reduce(torch.ones(8 + rank), async_op=True).get_future()
    following = future.then(lambda f: f.value()[0] + 1)
    for one in (following, future):
        raised(errors.MismatchError, one.wait, "rank 0", "rank 1")
        raised(errors.MismatchError, one.value, "rank 0", "rank 1")


def test_mismatches() -> None:
    run(2, _dtypes_differ)
    run(2, _sizes_differ)
    run(2, _future_fails)


def _too_late(rank: int, size: int, folder: str) -> None:
    start(rank, size, folder, timeout_s=1.0)
    store = _store(folder, size)
    if rank == 0:
        raised(errors.TimeoutError, lambda: dist.all_reduce(torch.ones(1)), "rank 1", "all_reduce")
        store.set("seen", "1")
    else:
        store.wait(["seen"])


def _too_late_at_barrier(rank: int, size: int, folder: str) -> None:
    start(rank, size, folder)
    group, store = dist.distributed_c10d._get_default_group(), _store(folder, size)
    group.monitored_barrier(timedelta(seconds=60))
    if rank < 2:
        raised(errors.TimeoutError, lambda: group.monitored_barrier(timedelta(seconds=1)), "rank 2")
    store.add("seen", 1)
    while store.add("seen", 0) < size:
        time.sleep(0.01)


def _waits_too_short(rank: int, size: int, folder: str) -> None:
    """A wait's own timeout leaves the call as it is."""
    start(rank, size, folder)
    store, tensor = _store(folder, size), torch.zeros(1)
    if rank == 0:
        work = dist.irecv(tensor, 1)
        raised(errors.TimeoutError, lambda: work.wait(timedelta(milliseconds=5)), "5 ms")
        assert not work.is_completed()
        store.set("seen", "1")
        assert work.wait() and work.is_success() and tensor.item() == 3
    else:
        store.wait(["seen"])
        dist.send(torch.full((1,), 3.0), 0)


def test_timeouts() -> None:
    run(2, _too_late)
    run(3, _too_late_at_barrier)
    run(2, _waits_too_short)


def _killed(rank: int, size: int, folder: str) -> None:
    start(rank, size, folder)
    if rank == 1:
        child = os.fork()
        if child == 0:  # holds all that its parent had open, and ends last
            while os.getppid() != 1 and not os.path.exists(os.path.join(folder, "over")):
                time.sleep(0.01)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        raised(errors.PeerError, lambda: [dist.all_reduce(torch.ones(1)) for _ in range(2)], "rank 1")
    finally:
        open(os.path.join(folder, "over"), "w").close()


def test_killed() -> None:
    _, codes = launch(3, _killed)
    assert codes == [0, signal.SIGKILL, 0], codes


def _killed_in_training(rank: int, size: int, folder: str) -> None:
    """Through C++'s reducer, which waits for futures."""
    start(rank, size, folder)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    for step in range(3):
        if rank == 1 and step == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        loss = model(torch.ones(2, 8)).sum()
        if step == 0:
            loss.backward()
        else:
            raised(RuntimeError, loss.backward, "rank 1")
            return


def test_killed_in_training() -> None:
    _, codes = launch(2, _killed_in_training)
    assert codes == [0, signal.SIGKILL], codes


def _callback_of_hook_fails(rank: int, size: int, folder: str) -> None:
    """C++'s reducer tells what the callback raised."""
    start(rank, size, folder)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))

    def fail(future):
        raise ValueError("the callback's words")

    def hook(state, bucket):
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(fail)

    model.register_comm_hook(None, hook)
    raised((RuntimeError, ValueError), model(torch.ones(2, 8)).sum().backward, "the callback's words")
    dist.barrier()


def test_callback_of_hook_fails() -> None:
    run(2, _callback_of_hook_fails)


def _interrupted(rank: int, size: int, folder: str) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    start(rank, size, folder)
    store = _store(folder, size)
    if rank == 0:
        work = dist.irecv(torch.zeros(1), 1)
        raised(KeyboardInterrupt, lambda: [store.set("pid", str(os.getpid())), work.wait()])
        store.set("seen", "1")
        work.wait()
    else:
        os.kill(int(store.get("pid")), signal.SIGINT)
        store.wait(["seen"])
        dist.send(torch.ones(1), 0)


def _interrupted_joining(rank: int, size: int, folder: str) -> None:
    """The other rank never comes."""
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        while not any(thread.name == "tutti join" for thread in threading.enumerate()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    raised(KeyboardInterrupt, lambda: start(0, 2, folder, timeout_s=3000))


def _destroyed_by_handler(rank: int, size: int, folder: str) -> None:
    """While the same thread waits."""
    start(rank, size, folder)
    store = _store(folder, size)
    if rank == 0:
        signal.signal(signal.SIGTERM, lambda *_: dist.destroy_process_group())
        work = dist.irecv(torch.zeros(1), 1)
        raised(errors.AbortedError, lambda: [store.set("pid", str(os.getpid())), work.wait()])
        store.set("seen", "1")
    else:
        os.kill(int(store.get("pid")), signal.SIGTERM)
        store.wait(["seen"])


def test_interrupted() -> None:
    run(2, _interrupted)
    run(2, _destroyed_by_handler)
    run(1, _interrupted_joining)


def _exits_under_way(rank: int, size: int, folder: str, clean: bool) -> None:
    start(rank, size, folder)
    tensor = torch.zeros(4)
    receive = dist.irecv(tensor, 1 - rank, tag=5)
    receive.get_future().then(lambda f: print("a callback ran"))
    dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda f: dist.barrier(async_op=True))
    dist.barrier()
    if clean:
        dist.destroy_process_group()


def test_exit_under_way() -> None:
    for clean in (False, True):
        _, codes = launch(2, _exits_under_way, clean, whole_exit=True)
        assert codes == [0, 0], codes


def _one_grace(rank: int, size: int, folder: str) -> None:
    """At exit, for all groups together: many with calls under way would take minutes."""
    start(rank, size, folder)
    groups = [dist.new_group([0, 1]) for _ in range(3)]
    deadlines, leave = [], Lane.leave
    Lane.leave = lambda lane, deadline: deadlines.append(deadline)
    try:
        tutti.torch._leave_all()
    finally:
        Lane.leave = leave
    assert len(deadlines) == len(groups) + 1 and deadlines == deadlines[:1] * len(deadlines), deadlines


def test_one_grace() -> None:
    run(2, _one_grace)


class _Numbers(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int):
        return torch.tensor([i])


def _forks(rank: int, size: int, folder: str) -> None:
    start(rank, size, folder)
    pending = dist.irecv(torch.zeros(1), 1 - rank)
    following = pending.get_future().then(lambda f: f.value())
    future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
    future.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT_S)
        code = 1
        try:
            raised(errors.AbortedError, lambda: dist.all_reduce(torch.ones(1)), "forked")
            raised(errors.AbortedError, pending.wait, "forked")
            raised(errors.AbortedError, following.wait, "forked")
            dist.destroy_process_group()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    child = os.fork()
    if child == 0:
        sys.exit(0)  # through atexit and the collection of all objects
    assert os.waitpid(child, 0)[1] == 0
    loader = torch.utils.data.DataLoader(_Numbers(), batch_size=2, num_workers=2)
    total = sum(batch.sum() for batch in loader)
    dist.all_reduce(total)
    assert total.item() == 28 * size
    dist.send(torch.ones(1), 1 - rank)
    following.wait()


def test_forks() -> None:
    run(2, _forks)


def _many_groups(rank: int, size: int, folder: str) -> int:
    start(rank, size, folder)
    groups = [dist.new_group(list(range(size))) for _ in range(GROUPS)]
    for i, group in enumerate(groups):
        tensor = torch.full((1,), float(i))
        dist.all_reduce(tensor, group=group)
        assert tensor.item() == i * size
    halves = [dist.new_group([r for r in range(size) if r % 2 == odd]) for odd in (0, 1)]
    own = torch.full((1,), float(rank))
    dist.all_reduce(own, group=halves[rank % 2])
    assert own.item() == sum(r for r in range(size) if r % 2 == rank % 2)
    return len(os.listdir("/proc/self/fd"))


def test_many_groups() -> None:
    descriptors = max(run(8, _many_groups))
    print(f"descriptors of {GROUPS} groups of 8 ranks: {descriptors}")
    assert descriptors < 1024, descriptors


def _begins_again(rank: int, size: int, folder: str) -> list:
    counts = []
    for i in range(3):
        store = dist.FileStore(os.path.join(folder, f"store-{i}"), size)
        dist.init_process_group("tutti", store=store, rank=rank, world_size=size)
        dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda f: 1).wait()
        dist.destroy_process_group()
        counts.append(len(os.listdir("/proc/self/fd")))
    return counts


def test_begins_again() -> None:
    """Nothing is left of a group that was destroyed."""
    for counts in run(2, _begins_again):
        assert counts[1] == counts[2], f"descriptors after each: {counts}"


def _begins_again_in_store(rank: int, size: int, folder: str) -> None:
    """As under torchrun, where the agent's store outlives the groups. Ranks do not wait for each other in between."""
    store = dist.FileStore(os.path.join(folder, "store"), size)
    for _ in range(10):
        kept = dist.PrefixStore("attempt 0", store)
        dist.init_process_group("tutti", store=kept, rank=rank, world_size=size, timeout=timedelta(seconds=30))
        dist.destroy_process_group()


def _world_of_gloo_next(rank: int, size: int, folder: str) -> None:
    """While something, as a DDP model would, still holds the world that was destroyed."""
    start(rank, size, folder)
    kept = dist.group.WORLD
    dist.destroy_process_group()
    start(rank, size, folder, backend="gloo")
    group, tensor = dist.new_group(backend="tutti"), torch.ones(1)
    dist.all_reduce(tensor, group=group)
    assert tensor.item() == size and kept.size() == size


def test_begins_again_in_store() -> None:
    if torch.__version__.startswith("1."):
        print("left out: torch 1 itself does not begin twice in one store")
    else:
        run(2, _begins_again_in_store)
    run(2, _world_of_gloo_next)


if __name__ == "__main__":
    run_all(
        [
            test_mismatches,
            test_timeouts,
            test_killed,
            test_killed_in_training,
            test_callback_of_hook_fails,
            test_interrupted,
            test_exit_under_way,
            test_one_grace,
            test_forks,
            test_many_groups,
            test_begins_again,
            test_begins_again_in_store,
        ]
    )
