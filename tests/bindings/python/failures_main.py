"""One rank of a job without a launcher: failures_main.py CASE. What it ends with is printed, or is its exit code."""

import array
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import tutti
from tutti import _objects
from tutti import mpi as MPI

if __name__ == "__main__":  # not in a process that multiprocessing spawns
    comm = tutti.init(timeout=100)
    rank, P = comm.rank, comm.size
    x = array.array("f", [1]) * (1 << 20)


def once_in_a_call(action, is_in=lambda: comm._state.active):
    """A thread does it when the main thread is in a call of comm."""

    def watch():
        while not is_in():
            pass
        action()

    threading.Thread(target=watch, daemon=True).start()


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def killed():
    """Rank 1 dies; the others hear who, and go on without it."""
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.all_reduce(x)
    except tutti.PeerError as error:
        assert "rank 1" in str(error).lower() and comm.failed == [1] and error.name == "PEER", (str(error), comm.failed)
    with comm.shrink() as left:
        left.barrier()
        assert (left.size, left.parent_rank(left.rank)) == (P - 1, rank), (left, left.parent_rank(left.rank), rank)
    comm.destroy()


def killed_in_objects():
    """What the caller's function raises on the rank that runs it is not replaced by what it then hears of another."""
    world = MPI.Comm(comm)

    def function(a, b):
        while comm.failure is None:  # so that the scatter fails
            pass
        raise KeyError("of the function")

    if rank == 1:
        _objects.scatter = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    try:
        world.scan(rank, function)
    except KeyError as error:
        assert rank == 0 and isinstance(error.__cause__, tutti.PeerError), (rank, error.__cause__)
    except tutti.PeerError as error:
        assert rank == 2 and "rank 1" in str(error).lower(), (rank, error)
    comm.destroy()


def recovered():
    """What comm.start gave before is of the new communicator, too: its ranks are fewer."""
    start = comm.start
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.all_reduce(x)
    except tutti.PeerError:
        pass
    comm.recover(P)
    assert (start.rank, start.size) == (comm.rank, comm.size) == (rank // 2, P - 1), (start.rank, start.size, comm)
    ranks = array.array("i", [rank]) * comm.size
    start.all_gather(None, ranks).wait()
    assert list(ranks) == [0, 2], ranks
    comm.destroy()


def late():
    """A deadline names the rank that is missing."""
    if rank == 1:
        while comm.failure is None:
            pass
        return
    try:
        comm.barrier(timeout=0.2)
    except tutti.TimeoutError as error:
        assert isinstance(error, TimeoutError) and "rank 1" in str(error).lower(), str(error)
        return
    raise AssertionError("no timeout")


def interrupted():
    """Ctrl-C on a rank that waits in a collective: at once here, and the others hear of it."""
    if rank == 0:
        once_in_a_call(interrupt)
    try:
        if rank == 0 or "recv" in sys.argv:
            comm.recv(x, P - 1) if "recv" in sys.argv and rank == 0 else comm.all_reduce(x)
        else:
            while comm.failure is None:  # not in the call that rank 0 waits in
                pass
            raise comm.failure
    except KeyboardInterrupt:
        assert rank == 0 and isinstance(comm.failure, tutti.AbortedError)
    except (tutti.PeerError, tutti.AbortedError) as error:
        assert rank != 0 and "rank 0" in str(error).lower(), str(error)
    else:
        raise AssertionError("nothing was raised")


def interrupted_objects():
    """Ctrl-C in mpi4py's blocking calls of objects: as in a blocking call of buffers."""
    from tutti import mpi as MPI

    calls = MPI.Comm(comm)
    blocked = {
        "recv": lambda: calls.recv(source=1),
        "send": lambda: calls.send(bytes(1 << 24), 1),
        "sendrecv": lambda: calls.sendrecv(1, 1, source=1),
    }

    def waits():
        for flight in comm._state.flights.copy():
            if not flight.lock.acquire(blocking=False):
                return True
            flight.lock.release()
        return False

    if rank == 0:
        once_in_a_call(interrupt, waits)
        try:
            blocked[sys.argv[2]]()
        except KeyboardInterrupt:
            assert isinstance(comm.failure, tutti.AbortedError), comm.failure
        else:
            raise AssertionError("nothing was raised")
    else:
        while comm.failure is None:
            pass
        assert "rank 0" in str(comm.failure).lower(), comm.failure


def interrupted_wait():
    """Ctrl-C in Work.wait: the work goes on."""
    work = comm.start.all_reduce(x) if rank == 0 else None
    if rank == 0:
        once_in_a_call(interrupt)
        try:
            work.wait()
        except KeyboardInterrupt:
            comm.send(b"go", 1)  # rank 1 takes part from now on
        else:
            raise AssertionError("nothing was raised")
        work.wait()
    else:
        if rank == 1:
            comm.recv(bytearray(2), 0)
        comm.all_reduce(x)
    assert set(x) == {P} and comm.failure is None
    comm.destroy()


def interrupted_await():
    """Ctrl-C in a task that awaits: the loop ends, and the with block aborts what it has left."""
    import asyncio

    async def program():
        with comm:
            if rank == 0:
                asyncio.get_running_loop().call_later(0.01, interrupt)
                await asyncio.gather(comm.start.all_reduce(x), comm.start.recv(bytearray(4), 1))
            while comm.failure is None:
                pass
            raise comm.failure

    try:
        asyncio.run(program())
    except KeyboardInterrupt:
        assert rank == 0
    except (tutti.PeerError, tutti.AbortedError) as error:
        assert rank != 0 and "rank 0" in str(error).lower(), str(error)
    else:
        raise AssertionError("nothing was raised")


def interrupted_split():
    """In a call that has no work: before it is in the library, and in there."""
    if rank == 0:
        if "inside" in sys.argv:
            split, inside = tutti._library.lib.tutti_comm_split, []
            tutti._library.lib.tutti_comm_split = lambda *arguments: inside.append(None) or split(*arguments)
            once_in_a_call(interrupt, lambda: inside)
        else:
            once_in_a_call(interrupt, lambda: len(sys._current_frames()) > 2)
        try:
            comm.split(0)
        except KeyboardInterrupt:
            return
        raise AssertionError("nothing was raised")
    while comm.failure is None:
        pass


def waits(child):
    with contextlib.suppress(tutti.AbortedError):
        child.start.recv(bytearray(9), P - 1, tag=1).wait()


def blocks(other):
    with contextlib.suppress(tutti.AbortedError):
        other.recv(bytearray(9), P - 1, tag=1)


async def wait_for_ever():
    await comm.start.recv(bytearray(9), P - 1, tag=3)


def exits():
    """The interpreter ends with works in flight, a thread in a call, a task and a done function that wait, and objects in
    cycles: no hang, no crash."""
    import asyncio

    global work, cycle, loop
    child, other = comm.dup(), comm.dup()
    if rank == 0:
        threading.Thread(target=blocks, args=(other,), daemon=True).start()
        while not other._state.active:
            pass
        cycle = [child.start.recv(bytearray(1000), P - 1), child]
        cycle.append(cycle)
        work = comm.start.all_reduce(x)
        comm.start.recv(bytearray(5), P - 1)  # dropped
        comm.start.recv(bytearray(5), P - 1, tag=2, done=lambda work: time.sleep(0.1))  # and the next one comes behind it
        comm.start.recv(bytearray(5), P - 1, tag=2, done=lambda work: print("done at the end", flush=True))
        loop = asyncio.new_event_loop()
        cycle.append(loop.create_task(wait_for_ever()))  # neither the loop nor its task comes to an end
        loop.run_until_complete(asyncio.sleep(0))
        threading.Thread(target=waits, args=(child,), daemon=True).start()
    else:
        while comm.failure is None:
            pass


def raises():
    """An exception in the with block: the others do not wait for this rank."""
    try:
        with comm:
            work = comm.start.all_reduce(x) if rank == 0 else None  # noqa: F841
            if rank == 0:
                raise KeyError("of the program")
            while comm.failure is None:
                pass
    except KeyError:
        assert rank == 0


def forked():
    """A child has only a picture of the communicator: it ends as it likes, and the parent goes on."""
    import asyncio

    work = comm.start.recv(bytearray(4), (rank - 1) % P, tag=9, done=print)
    waiter = threading.Thread(target=work.wait)
    waiter.start()
    while work._flight.lock.acquire(blocking=False):
        work._flight.lock.release()
    child = os.fork()  # with a lock of a thread that the child has not
    if child == 0:
        signal.alarm(60)
        assert not tutti._ends._loops and not tutti._ends._done

        async def awaits():
            await work

        for make in (comm.barrier, comm.dup, work.test, lambda: asyncio.run(awaits()), work.wait):
            try:
                make()
            except tutti.InvalidError as error:
                assert "forked" in str(error), str(error)
            else:
                os._exit(4)
        comm.destroy()
        sys.exit(7)  # through atexit
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    import multiprocessing

    for method in ("fork", "spawn"):
        process = multiprocessing.get_context(method).Process(target=print, args=(f"in a child by {method}",))
        process.start()
        process.join()
        assert process.exitcode == 0
    assert subprocess.run(["true"]).returncode == 0
    comm.barrier()  # a child of the other rank must find its work in flight
    comm.start.send(b"1234", (rank + 1) % P, tag=9)
    waiter.join()
    work.wait()
    comm.all_reduce(x)
    assert set(x) == {P}
    comm.destroy()


def garbage():
    """A communicator that is dropped leaves, and says so if asked."""
    import gc
    import warnings

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        child = comm.dup()
        del child
        gc.collect()
    assert [w.category for w in said] == [ResourceWarning], said
    comm.barrier()
    comm.destroy()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("ended", flush=True)
