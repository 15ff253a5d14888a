"""One of two or more ranks: works that tasks of asyncio await, and done functions."""

import asyncio
import gc
import os
import random
import sys
import threading

import numpy as np
import tutti
from checks import raises

comm = tutti.init(timeout=60)
rank, P = comm.rank, comm.size
right, left = (rank + 1) % P, (rank - 1) % P
numbers = random.Random(int(sys.argv[1]) + rank)
total = sum(range(P))


def ones(n=3):
    return np.full(n, rank, np.int64)


def eventfds():
    paths = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return sum("eventfd" in os.readlink(path) for path in paths if os.path.islink(path))


def no_looking():
    """From now on works that no call's end is told of are not found."""
    tutti._ends.Ends.look_at_untold = lambda self: None


async def one():
    x = ones()
    assert await comm.start.all_reduce(x) is None
    assert (x == total).all()
    work = comm.start.all_reduce(x)
    work.wait()
    await work  # it is over
    await work
    with tutti.group(wait=False) as g:
        comm.all_reduce(x)
        comm.all_reduce(x)
    await g.work
    assert (x == total * P**3).all()
    with tutti.group(wait=False) as g:
        pass
    await g.work


async def many():
    """In other orders than they end in; the loop goes on meanwhile; several tasks wait for one."""
    arrays = [np.full(numbers.randrange(1, 2000), rank + i, np.int64)[:1] for i in range(200)]
    works = [comm.start.all_reduce(a) for a in arrays]
    order = [*enumerate(works), *enumerate(works[:20])]
    numbers.shuffle(order)

    async def follow(i, work):
        await work
        assert arrays[i][0] == total + P * i and work.test()

    await asyncio.gather(*(follow(i, work) for i, work in order))
    assert not comm._state.flights


async def messages():
    """The first that is awaited ends last: no wait holds up another one."""
    received = [bytearray(1) for _ in range(300)]
    works = [comm.start.recv(x, left, tag=i) for i, x in enumerate(received)]
    tasks = [asyncio.ensure_future(work) for work in works]
    await asyncio.sleep(0)
    for i in reversed(range(len(received))):
        await comm.start.send(bytes([i % 256]), right, tag=i)
        await tasks[i]
        assert received[i][0] == i % 256 and works[i].source == left
    ends = [task async for task in _completed(comm.start.recv(received[0], tag=1), comm.start.send(b"x", right, tag=1))]
    assert len(ends) == 2 and received[0] == b"x"


async def _completed(*works):
    for task in asyncio.as_completed(works):
        yield await task


async def cancelled():
    """A recv is withdrawn, and the next one gets the message; a collective goes on."""
    x, y = bytearray(1), bytearray(1)
    work = comm.start.recv(x, left, tag=5)
    with raises(asyncio.TimeoutError):
        await asyncio.wait_for(work, 0.01)
    with raises(tutti.AbortedError):
        await work
    await comm.start.barrier()
    receiving = comm.start.recv(y, left, tag=5)
    await comm.start.send(b"m", right, tag=5)
    await receiving
    assert (x, y) == (b"\0", b"m")
    a = ones()
    if rank == 0:
        work = comm.start.all_reduce(a)
        for _ in range(3):
            with raises(asyncio.TimeoutError):
                await asyncio.wait_for(work, 0.001)
        assert not work._flight.on_end, "what waited for it"
    await asyncio.sleep(0)
    with tutti.group(wait=False) as g:  # rank 0's first call meets the others' behind this message
        comm.send(b"go", right, tag=6) if rank == 0 else None
        comm.recv(bytearray(2), left, tag=6) if rank == 1 else None
    await g.work
    if rank != 0:
        work = comm.start.all_reduce(a)
    await work
    assert (a == total).all() and comm.failure is None


async def failed():
    """Every task gets the library's exception; the loop and the other communicators are well."""
    child = comm.dup()
    with raises(tutti.MismatchError, match=r"(?s)(all_reduce.*broadcast|broadcast.*all_reduce)"):
        await (child.start.all_reduce(ones()) if rank == 0 else child.start.broadcast(ones()))
        await child.start.barrier()
    child.destroy()
    child = comm.dup()
    work = child.start.recv(bytearray(1), left)
    tasks = [asyncio.ensure_future(work) for _ in range(2)]
    asyncio.get_running_loop().call_soon(child.abort)
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert found[0] is found[1] and isinstance(found[0], (tutti.AbortedError, tutti.PeerError)), found
    child.destroy()
    await comm.start.barrier()
    child = comm.dup()
    waiting = asyncio.ensure_future(child.start.barrier())
    await asyncio.sleep(0)
    child.destroy()  # the work ends first, in here
    await waiting


elsewhere = []


async def issue():
    elsewhere.append((comm.start.all_reduce(x := ones()), x))


async def from_elsewhere():
    """Works of before the loop, of another loop, of another thread, and one that another thread gives up to wait for."""
    await asyncio.to_thread(lambda: elsewhere.append((comm.start.all_reduce(x := ones()), x)))
    for work, x in elsewhere:
        await work
        assert (x == total).all()
    task = asyncio.ensure_future(early)
    await comm.start.send(b"x", right, tag=9)
    await task
    work, is_held, go = comm.start.recv(bytearray(1), left, tag=7), threading.Event(), threading.Event()

    def hold():
        with work._flight.lock:
            is_held.set()
            go.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    task = asyncio.ensure_future(work)
    await comm.start.send(b"x", right, tag=7)
    await comm.start.barrier()
    await asyncio.sleep(0.01)  # it has ended, and the loop was told
    go.set()
    await task
    thread.join()


async def seen_elsewhere():
    """The thread that waits sees the end, and tells the loop."""
    works = [comm.start.recv(bytearray(1), left, tag=7) for _ in range(2)]
    threads = [threading.Thread(target=work.wait) for work in works]
    [thread.start() for thread in threads]
    tasks = [asyncio.ensure_future(work) for work in works]
    await asyncio.sleep(0.01)
    [comm.send(b"x", right, tag=7) for _ in works]
    await asyncio.gather(*tasks)
    [thread.join() for thread in threads]


def without_a_loop():
    work = comm.start.recv(bytearray(1), left, tag=8)
    with raises(RuntimeError, match="no running event loop"):
        next(work.__await__())
    assert work.cancel()


def done_functions():
    """Called once, in one thread that may issue calls and wait, also for one another's works."""
    seen, all_seen, child = [], threading.Event(), comm.dup()

    def done(work):
        seen.append((work, threading.get_ident(), work.test()))
        if len(seen) == 20:
            child.all_reduce(x := ones())
            child.start.barrier(done=lambda work: all_seen.set())
            assert (x == total).all()

    works = [comm.start.all_reduce(ones(), done=done) for _ in range(19)]
    with tutti.group(wait=False, done=done) as g:
        comm.all_reduce(ones())
        comm.barrier()
    assert all_seen.wait(60)
    assert {work for work, *_ in seen} == {*works, g.work} and len(seen) == 20 and len({thread for _, thread, _ in seen}) == 1
    assert threading.get_ident() != seen[0][1] and all(is_over for *_, is_over in seen)
    child.destroy()
    told = threading.Event()
    with tutti.group(wait=False, done=lambda work: told.set()):
        pass
    assert told.wait(60)
    with raises(tutti.InvalidError, match="a group that waits has no work"):
        tutti.group(done=done)


def failing_done_functions():
    """Of a call that failed, and one that raises itself."""
    child, told, hook = comm.dup(), [], sys.excepthook
    all_told = threading.Event()

    def done(work):
        try:
            work.wait()
        except tutti.Error as error:
            told.append(error)
        raise KeyError("of done")

    sys.excepthook = lambda kind, error, trace: (told.append(error), all_told.set())
    child.start.recv(bytearray(1), left, done=done)
    child.abort()
    assert all_told.wait(60)
    def broken(*_):
        raise OverflowError("of the hook")

    sys.excepthook, went_on = broken, threading.Event()
    comm.start.barrier(done=lambda work: 1 / 0)
    comm.start.barrier(done=lambda work: went_on.set())
    assert went_on.wait(60), "a hook that raises has ended the thread of done functions"
    sys.excepthook = hook
    assert len(told) == 2 and isinstance(told[0], (tutti.AbortedError, tutti.PeerError)) and isinstance(told[1], KeyError), told
    child.destroy()


early = comm.start.recv(bytearray(1), left, tag=9)
elsewhere.append((comm.start.all_reduce(x := ones()), x))
asyncio.run(issue())
asyncio.run(from_elsewhere())
without_a_loop()
for body in (done_functions, failing_done_functions):
    body()
    print("did", body.__name__, flush=True)
no_looking()
found = []
for body in (one, many, messages, cancelled, failed, seen_elsewhere):
    asyncio.run(body())
    gc.collect()
    found.append(eventfds())
    print("did", body.__name__, flush=True)
assert not tutti._ends._loops and found[-1] == found[0], f"loops leave eventfds behind: {found}"
comm.destroy()
