"""Fails when a group does not answer what torch and its users ask besides calls: attributes, options, parts of it, futures,
names of devices."""

import os
import signal
import sys
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from torch_ranks import raised, run, run_all, start

import tutti.errors
from tutti.torch.futures import OrderedFuture
from tutti.torch.group import Delegate

CPU = torch.device("cpu")
ENDS = {"abort", "shutdown", "_pybind11_conduit_v1_"}


def _outcome(call):
    """What call gives. An error says what it is about; a RecursionError is a question that nobody answers."""
    try:
        return call()
    except RecursionError:
        raise
    except Exception as error:
        assert str(error), repr(error)
        return error


def _walk(rank, size, folder):
    start(rank, size, folder)
    group = dist.group.WORLD
    backend = group._get_backend(CPU) if hasattr(group, "_get_backend") else group
    seen = 0
    for holder, kinds in ((group, type(group).__mro__), (backend, type(backend).__mro__)):
        names = sorted({name for kind in kinds for name in vars(kind) if kind is not object} - ENDS)
        for name in names:
            if name.startswith("__"):
                continue
            found = _outcome(lambda: getattr(holder, name))  # noqa: B023
            if callable(found) and not isinstance(found, type):
                _outcome(found)  # many want arguments, and say so
            seen += 1
    assert seen > 50
    if Delegate is not None:
        named = {
            "merge": (None, None, 0, 2), "split": (None, [0], None), "_verify_work_timeout": (None, None),
            "allocate_tensor": (4,), "supports_tensor_alloc": (CPU,), "eager_connect_single_device": (CPU,),
        }  # fmt: skip
        for name, arguments in named.items():
            _outcome(lambda: getattr(backend, name)(*arguments))  # noqa: B023
        for name in ("merge", "split"):
            raised(tutti.errors.UnsupportedError, lambda: getattr(backend, name)(None), "dist.split_group")
        raised(tutti.errors.UnsupportedError, lambda: group.merge_remote_group(None, 2), "cannot be merged", "new_group")
    if not hasattr(dist.distributed_c10d, "BackendConfig"):  # torch 1.13
        raised(tutti.errors.UnsupportedError, lambda: group.options, "has no options")
        return
    for holder in {group, backend}:
        options = holder.options
        assert options.backend == "tutti" and options._timeout == timedelta(seconds=60)
        group.set_timeout(timedelta(seconds=50))
        assert holder.options._timeout == timedelta(seconds=50)
        group.set_timeout(timedelta(seconds=60))
    x = torch.ones(3)
    dist.all_reduce(x)
    assert (x == size).all()


def attributes():
    for size in (1, 2):
        run(size, _walk)


def _split(rank, size, folder):
    start(rank, size, folder)
    world = dist.group.WORLD
    for turn in range(3):  # the same name again
        part = world.split_group([2, 0, 1])  # in this order
        if rank == 3:
            assert part is None
        else:
            assert (part.rank(), part.size()) == ([2, 0, 1].index(rank), 3)
            x = torch.full((5,), float(rank))
            part.allreduce([x]).wait()
            assert (x == 3).all()
            half = part.split_group([1, 0], timedelta(seconds=7), None, f"of {turn}")  # of a part, in its ranks
            assert (half is None) == (rank == 1)
            if half is not None:
                assert half.group_name == f"of {turn}" and half.timeout_ms == 7000
                gathered = [torch.zeros(1), torch.zeros(1)]
                half.allgather([gathered], [torch.tensor([float(rank)])]).wait()
                assert [t.item() for t in gathered] == [0, 2]
                half.shutdown()
            part.shutdown()
    alone = world.split_group([rank])
    alone.barrier().wait()
    raised(tutti.errors.Error, lambda: world.split_group([rank, rank]), "twice")
    if Delegate is not None:
        groups = [[0, 3], [2, 1]]
        mine = next(ranks for ranks in groups if rank in ranks)
        part = dist.split_group(world, groups, timeout=timedelta(seconds=9), group_desc="halves")
        x = torch.full((2,), float(rank))
        dist.all_reduce(x, group=part)
        assert (x == sum(mine)).all() and dist.get_rank(part) == mine.index(rank) and dist.get_process_group_ranks(part) == mine
        assert part.group_desc == "halves" and dist.get_backend(part) == "tutti"
        objects = [None, None]
        dist.all_gather_object(objects, rank, group=part)
        assert objects == mine
        part.get_group_store().set(f"key {rank}", "x")
        dist.destroy_process_group(part)
        rest = dist.split_group(world, [[1, 2]])
        assert (rest is dist.GroupMember.NON_GROUP_MEMBER) == (rank in (0, 3))
        if rank in (1, 2):
            dist.barrier(rest)
    later = dist.new_group([0, 1, 2, 3])
    dist.barrier(later)


def split_groups():
    run(4, _split)


def _calls(rank, size):
    """Every call that has a work, and what it leaves."""
    def one():
        return torch.ones(2)

    def many():
        return [torch.zeros(2) for _ in range(size)]

    group = dist.group.WORLD
    right, left = (rank + 1) % size, (rank - 1) % size
    asynchronous = {"async_op": True}
    yield "all_reduce", lambda: dist.all_reduce(one(), **asynchronous)
    yield "broadcast", lambda: dist.broadcast(one(), 0, **asynchronous)
    yield "reduce", lambda: dist.reduce(one(), 0, **asynchronous)
    yield "all_gather", lambda: dist.all_gather(many(), one(), **asynchronous)
    yield "gather", lambda: dist.gather(one(), many() if rank == 0 else None, 0, **asynchronous)
    yield "scatter", lambda: dist.scatter(one(), many() if rank == 0 else None, 0, **asynchronous)
    yield "reduce_scatter", lambda: dist.reduce_scatter(one(), many(), **asynchronous)
    yield "all_to_all", lambda: dist.all_to_all(many(), many(), **asynchronous)
    yield "all_to_all_single", lambda: dist.all_to_all_single(torch.zeros(size), torch.ones(size), **asynchronous)
    yield "_allgather_base", lambda: group._allgather_base(torch.zeros(2 * size), one())
    yield "_reduce_scatter_base", lambda: group._reduce_scatter_base(one(), torch.ones(2 * size))
    yield "coalesced", lambda: group.allreduce_coalesced([one(), one()])
    yield "strided", lambda: dist.all_reduce(torch.ones(4, 4)[:, 1], **asynchronous)
    yield "barrier", lambda: dist.barrier(**asynchronous)

    def pair():
        received = group.recv([one()], left, 5)
        sent = group.send([one()], right, 5)
        sent.wait()
        return received

    yield "recv", pair


def _futures(rank, size, folder):
    start(rank, size, folder)
    waits = (
        lambda work: work.wait(),
        lambda work: work.wait(timedelta(seconds=30)),
        lambda work: all(iter(lambda: not work.is_completed(), False)) or None,  # polls
    )
    for name, call in _calls(rank, size):
        for wait in waits:
            for is_before in (False, True):
                work = call()
                future = work.get_future() if is_before else None
                wait(work)
                future = future or work.get_future()
                assert work.is_completed() and work.is_success() and work.exception() is None, name
                assert future.done(), name
                value = future.value()
                assert value is work.result() or [t.tolist() for t in value] == [t.tolist() for t in work.result()], name
                threads = []
                chained = future.then(lambda f: threads.append(threading.current_thread()) or f.value())
                second = chained.then(lambda f: len(f.value()))
                assert second.value() == len(value) and len(chained.value()) == len(value), name
                assert chained.done() and second.done() and threads[0] is not threading.main_thread(), name
    # One that is not over has no value, and says so.
    if rank == 0:
        work = dist.group.WORLD.recv([torch.zeros(2)], 1, 77)
        future = work.get_future()
        assert not future.done()
        raised(RuntimeError, future.value, "no value yet")
        chained = future.then(lambda f: f.value())
        assert not chained.done()
        raised(RuntimeError, chained.value, "no value yet")
    dist.barrier()
    if rank == 1:
        dist.group.WORLD.send([torch.ones(2)], 0, 77).wait()
    elif rank == 0:
        work.wait()
        assert future.value()[0].tolist() == [1, 1] == chained.value()[0].tolist()
    dist.barrier()  # the next call ends the group, and with it what is under way
    # A call that failed is done, and its value is the error.
    work = dist.all_reduce(torch.ones(2 + rank), async_op=True)
    error = raised(RuntimeError, work.wait, "called all_reduce")
    future = work.get_future()
    assert future.done() and work.is_completed() and not work.is_success() and str(work.exception()) == error
    raised(tutti.errors.MismatchError, future.value, "called all_reduce")
    raised(tutti.errors.MismatchError, future.then(lambda f: f.value()).value, "called all_reduce")


def _waiting_callbacks(rank, size, folder):
    """A callback may wait for one that was attached after it, which then runs inside of the wait; not for itself."""
    signal.alarm(60)
    start(rank, size, folder)
    for wait in (OrderedFuture.value, OrderedFuture.wait):
        gate, ran, errors = threading.Event(), [], []
        dist.all_reduce(torch.ones(2), async_op=True).get_future().then(lambda f: gate.wait(30))  # noqa: B023
        future = dist.all_reduce(torch.ones(2), async_op=True).get_future()

        def first(f):
            ran.append("first")  # noqa: B023
            found = wait(last), wait(later), wait(third)  # noqa: B023
            errors.append(raised(RuntimeError, lambda: wait(own), "waits for itself"))  # noqa: B023
            errors.append(raised(RuntimeError, lambda: wait(after_own), "waits for itself"))  # noqa: B023
            return found

        def back(f):
            errors.append(raised(RuntimeError, lambda: wait(own), "waits for itself"))  # noqa: B023
            return 3

        def say(name, value):
            def callback(f):
                ran.append(name)  # noqa: B023
                return value(f)

            return callback

        own = future.then(first)
        after_own = own.then(say("after own", lambda f: wait(f)))  # noqa: B023
        between = future.then(say("between", lambda f: 5))
        later = future.then(say("later", lambda f: 1))
        last = later.then(say("last", lambda f: wait(f) + 1))  # noqa: B023
        third = future.then(back)
        gate.set()
        assert own.wait() == (2, 1, 3) == after_own.wait() and between.wait() == 5 and len(errors) == 3
        assert ran == ["first", "between", "later", "last", "after own"], ran
        x = torch.ones(2)
        dist.all_reduce(x)
        assert (x == size).all()


def _callbacks_of_two_completers(rank, size, folder):
    """A callback waits for one of a call of its own, which waits for the first one: the second has the error."""
    signal.alarm(60)
    start(rank, size, folder)
    for wait in (OrderedFuture.value, OrderedFuture.wait):
        gate, inner = threading.Event(), []
        dist.all_reduce(torch.ones(2), async_op=True).get_future().then(lambda f: gate.wait(30))  # noqa: B023

        def outer(f):
            future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
            inner.append(future.then(lambda f: wait(first)))  # noqa: B023
            inner.append(future.then(lambda f: 4))  # noqa: B023
            return wait_for_error(inner[0]), inner[1].wait()  # noqa: B023

        def wait_for_error(future):
            return raised(RuntimeError, future.wait, "wait for each other")

        first = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(outer)
        gate.set()
        assert first.wait()[1] == 4
        x = torch.ones(2)
        dist.all_reduce(x)
        assert (x == size).all()


def futures():
    for size in (2, 3):
        run(size, _futures)
    run(2, _waiting_callbacks)
    run(2, _callbacks_of_two_completers)


def _refused(rank, size, folder, name, *words):
    """A group whose backend string tutti cannot serve refuses each call, also to say which devices it has."""
    start(rank, size, folder, name)
    group, unsupported = dist.group.WORLD, tutti.errors.UnsupportedError
    for call in (lambda: dist.all_reduce(torch.ones(2)), lambda: group.allreduce([torch.ones(2)]), lambda: group.split_group([0])):
        raised(unsupported, call, *words)
    raised(unsupported, lambda: group._device_types, *words)
    raised(unsupported, lambda: dist.barrier(), *words)
    part = dist.new_group([0])  # has the same backends
    if rank == 0:
        raised(unsupported, lambda: part.barrier(), *words)
    dist.destroy_process_group()


def _called_by_another_function():
    """As a torch may that is not one of those tested: what calls the creator has no local variable of the backend's name."""
    plugins = dist.Backend._plugins
    plugin = plugins["TUTTI"]
    plugins["TUTTI"] = plugin._replace(creator_fn=lambda *arguments: plugin.creator_fn(*arguments))


def _named(rank, size, folder, name):
    has_devices = hasattr(dist, "BackendConfig") or hasattr(dist.distributed_c10d, "BackendConfig")
    if not has_devices:
        return "this torch has no devices in a backend's name"
    _called_by_another_function()
    others = ["cpu:tutti,cuda:gloo", "cpu:tutti,cuda:nccl"]
    if size == 1:  # where gloo is first, its ranks connect: one may leave before another has
        others.append("cpu:gloo,cuda:tutti")
    for wrong in others:
        _refused(rank, size, folder, wrong, wrong, "cannot share a group with")
    _refused(rank, size, folder, "xpu:tutti", "cpu and cuda, not of xpu")
    if not torch.cuda.is_available():
        _refused(rank, size, folder, "cuda:tutti", "no CUDA device")
    start(rank, size, folder, name)
    group = dist.group.WORLD
    here = ["cpu", "cuda"] if torch.cuda.is_available() and name != "cpu:tutti" else ["cpu"]
    assert [device.type for device in group._device_types] == here
    x = torch.ones(2)
    dist.all_reduce(x)
    assert (x == size).all()
    if Delegate is not None and "cuda" not in here:
        raised(RuntimeError, lambda: group._get_backend(torch.device("cuda")), "cuda")
    part = dist.new_group([0])
    if rank == 0:
        assert [device.type for device in part._device_types] == here
    only_cpu = dist.new_group([0], backend="cpu:tutti")
    if rank == 0:
        assert [device.type for device in only_cpu._device_types] == ["cpu"]
        mixed = dist.new_group([0], backend="cpu:tutti,cuda:nccl")
        raised(tutti.errors.UnsupportedError, lambda: mixed.barrier(), "cannot share a group with nccl")
    else:
        dist.new_group([0], backend="cpu:tutti,cuda:nccl")
    dist.destroy_process_group()


def devices():
    for name in ("tutti", "cpu:tutti", "cpu:tutti,cuda:tutti"):
        run(2, _named, name)
    run(1, _named, "tutti")


def no_cuda_device():
    """A group that is of the CPU alone refuses others' tensors, and CUDA is not started to look for devices."""
    assert not torch.cuda.is_initialized() and "PYTORCH_NVML_BASED_CUDA_CHECK" not in os.environ
    capability = getattr(dist.Backend, "backend_capability", {}).get("tutti")
    assert capability in (None, ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]), capability


if __name__ == "__main__":
    run_all((no_cuda_device, attributes, split_groups, futures, devices))
    sys.exit(0)
