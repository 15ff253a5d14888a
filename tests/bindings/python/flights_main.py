"""One rank: works, groups, messages, operations and children: what is in flight, what is dropped, and what keeps its memory."""

import contextlib
import ctypes
import gc
import threading
import traceback
import weakref

import numpy as np
import tutti
from checks import raises
from tutti import _flights

comm = tutti.init(timeout=60)
rank, P = comm.rank, comm.size
right, left = (rank + 1) % P, (rank - 1) % P


def works():
    arrays = [np.full(1000, rank + i, np.float64) for i in range(40)]
    flights = [comm.start.all_reduce(a, label=f"array {i}") for i, a in enumerate(arrays)]
    for i, work in reversed(list(enumerate(flights))):
        work.wait(60)
        assert work.test() and (arrays[i] == sum(range(P)) + P * i).all()
    work = comm.start.barrier()
    while not work.test():
        pass
    work.wait()
    threads = [threading.Thread(target=w.wait) for w in [comm.start.all_reduce(arrays[0])] * 4]  # four wait for one
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not comm._state.flights


def own_timeout():
    """The wait's timeout passes, the work goes on; a recv that is cancelled leaves its buffer."""
    x = np.zeros(4)
    work = comm.start.recv(x, left, tag=5)
    with raises(TimeoutError, match="recv is still in flight after 0.001 s: the work goes on") as caught:
        work.wait(0.001)
    assert not isinstance(caught.value, tutti.Error) and "in flight" in repr(work)
    assert work.cancel() and not work.cancel()
    frames = set()
    for _ in range(3):
        with raises(tutti.AbortedError) as caught:
            work.wait()
        frames.add(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(frames) == 1, "each raise adds to what was raised before"
    assert comm.failure is None and (x == 0).all()
    comm.barrier()


def unseen():
    """An interrupt came between the library's wait, which frees the handle, and the result: a look does not use the handle."""
    for look in (lambda work: work.test(), lambda work: work.wait(60) or work.test()):
        work = comm.start.barrier()
        while work._flight.cell.value:
            _flights._wait(ctypes.byref(work._flight.cell), 50)
        assert look(work) and not comm._state.flights
        work.wait()


def dropped():
    """The library writes into memory that nobody else has any more; it is freed once that is over."""
    x = bytearray(100_000)
    work = comm.start.recv(x, left, tag=6)
    freed = weakref.ref(work._flight.keep[0])
    del work, x
    gc.collect()
    comm.barrier()
    assert freed() is not None and len(comm._state.flights) == 1
    comm.send(bytes(100_000), right, tag=6)
    while comm._state.flights:
        comm._state.sweep()
    assert freed() is None


def messages():
    x, y = np.arange(5, dtype=np.int32) + rank, np.zeros(5, np.int32)
    with tutti.group():
        comm.send(x, right, tag=1, label=f"to {right}")
        comm.recv(y, left, tag=1)
    assert (y == np.arange(5) + left).all()
    work = comm.start.recv(y, tag=2)
    comm.send(x, right, tag=2)
    work.wait()
    assert work.source == left and (y == np.arange(5) + left).all()
    with raises(tutti.InvalidError, match="has no source"):
        comm.start.send(b"", rank).source
    assert comm.recv(bytearray(), rank) == rank
    sending = comm.start.send(x[:3], right, tag=3)
    with raises(tutti.MismatchError):
        comm.recv(y, left, tag=3)
    with contextlib.suppress(tutti.MismatchError):  # a short send may be over
        sending.wait()
    assert comm.failure is None


def groups():
    other = comm.dup()
    x, y = np.ones(10), np.ones(10, np.int64)
    with tutti.group():
        comm.all_reduce(x)
        with tutti.group():
            other.all_reduce(y, op=tutti.MAX)
        assert (x == 1).all()
    assert (x == P).all() and (y == 1).all()
    with tutti.group(wait=False, timeout=60) as g:
        comm.all_reduce(x)
        other.broadcast(y, 0)
    g.work.wait()
    assert (x == P * P).all() and g.work.test()
    with tutti.group(wait=False) as g:
        pass
    g.work.wait()
    tutti.group().__enter__()  # left so by a signal's handler that raises before __exit__ has begun
    comm.start.barrier().wait()
    with raises(KeyError), tutti.group():
        comm.all_reduce(x)
        raise KeyError
    again = tutti.group()
    with raises(tutti.InvalidError, match="this group is open already"), again, tutti.group(), again:
        pass
    with raises(tutti.InvalidError, match="timeout of -1 s"), tutti.group(timeout=-1):
        raise AssertionError("the block of a wrong group")
    for make in (comm.all_gather_object, comm.broadcast_object):
        with raises(tutti.InvalidError, match="an object is not sent in a group"), tutti.group():
            make(rank)
    assert (x == P * P).all()
    with raises(tutti.InvalidError, match="was destroyed"), tutti.group():
        other.barrier()
        other.destroy()
    comm.all_reduce(x)
    assert (x == P * P * P).all()


def operations():
    both = tutti.op_create("hypot", np.hypot)
    x = np.full(1000, 3.0, np.float32)
    comm.all_reduce(x, op=both)
    assert np.allclose(x, 3 * np.sqrt(P), rtol=1e-5)
    times = tutti.op_create("complex product", np.multiply, dtype="complex64")
    z = np.full(77, 1j, np.complex64)
    comm.all_reduce(z, op=times)
    assert np.allclose(z, 1j**P)
    with tutti.op_create_scaled(0.5, "f32") as half:
        x[:] = rank
        comm.all_reduce(x, op=half)
    assert (x == sum(range(P)) / 2).all()
    with tutti.op_create_scaled(1.5, "bf16") as scaled:
        b = np.full(4, 0x3F80, np.uint16)  # 1.0
        comm.all_reduce(b, op=scaled, dtype="bf16")
    assert (b.astype(np.uint32) << 16).view(np.float32)[0] == 1.5 * P
    ended = weakref.ref(both)
    del both
    assert ended() is None
    bools = np.array([rank == 0, False, True])
    for op, expected in ((tutti.SUM, [True, False, True]), (tutti.MIN, [P == 1, False, True]), (tutti.PROD, [P == 1, False, True])):
        got = np.zeros(3, bool)
        comm.all_reduce(bools, got, op)
        assert bytes(got) == bytes(expected), (op, bytes(got))  # 0 and 1, nothing else


def lossy_operation():
    """A function whose result does not fit the elements is an error, and not its whole or real part."""
    if P == 1:
        return
    for function, dtype in ((lambda a, b: (a + b) / 2, "i4"), (lambda a, b: (a + b) / 2, "u1"), (lambda a, b: a * 1j, "f4")):
        child = comm.dup()
        with raises((TypeError, tutti.AbortedError, tutti.PeerError), match="half: the function returned .* convert|abort|left"):
            child.all_reduce(np.ones(3, dtype), op=tutti.op_create("half", function))
            child.barrier()
        child.destroy()
    for function, dtype in ((lambda a, b: np.add(a, b, dtype="f8"), "f4"), (lambda a, b: a.astype("i8") + b, "u1")):
        with tutti.op_create("wide", function) as op:
            x = np.ones(3, dtype)
            comm.all_reduce(x, op=op)
            assert (x == P).all()


def broken_operation():
    """What the function raises is raised by the call; the communicator is aborted, so that no rank goes on with garbage."""
    def fails(inout, in_):
        if is_broken:
            raise ZeroDivisionError("in the function")
        return inout + in_

    if P == 1:
        return  # nothing is reduced
    op, is_broken, group = tutti.op_create("fails", fails), True, tutti.group()
    for _ in range(2):
        child = comm.dup()
        with raises((ZeroDivisionError, tutti.AbortedError, tutti.PeerError)):
            with group:
                child.all_reduce(np.ones(100), op=op)
            child.barrier()
        child.destroy()
    is_broken = False  # what it has raised is no failure of calls that begin later
    with comm.dup() as child:
        y = np.ones(100)
        child.all_reduce(y, op=op)
        child.start.all_reduce(y, op=op).wait()
        with group:
            child.all_reduce(y, op=op)
        assert (y == P**3).all()


def children():
    half = comm.split(rank % 2, -rank, name="half")
    assert half.size == (P + 1 - rank % 2) // 2 and half.parent_rank(half.rank) == rank and half.config.name == "half"
    x = np.array([rank])
    half.all_reduce(x)
    assert x[0] == sum(range(rank % 2, P, 2))
    assert half.config == comm.config._replace(name="half")  # what it does not name is the parent's
    quarter = half.split(0, timeout=1.001, deterministic=1)
    assert quarter.config == half.config._replace(timeout=1.001, deterministic=1)
    quarter.destroy()
    half.destroy()
    assert comm.split(-1) is None
    if rank < 2:
        with comm.create_from(list(range(min(2, P))), transports="shm") as pair:
            assert pair.config == comm.config._replace(transports="shm")
            assert pair.size == min(2, P) and pair.rank == rank
            pair.barrier()
    assert comm.agree(0b110 | rank % 2) == 0b110
    assert (comm.local_rank, comm.local_size, comm.node_rank, comm.num_nodes) == (rank, P, 0, 1)
    assert comm.config.timeout == 60 and comm.failed == [] and "rank" in repr(comm)


def places():
    """Each rank looks into the memory of the one before."""
    mine = comm.mem_alloc((3, 5), "i32")
    mine[:] = rank
    theirs = comm.all_gather_object(comm.mem_place_of(mine[1]))[left]
    with raises(tutti.InvalidError, match=r"mem_at: this rank reaches no \d+ bytes"):
        comm.mem_at(theirs, 1 << 40)
    there = comm.mem_at(theirs, 5, "i32")
    assert (there == left).all() and comm.mem_at(tutti.MemPlace(*theirs), (5, 1), "u32").shape == (5, 1)
    assert comm.mem_place_of(np.zeros(3)) is None
    for wrong in ((1 << 62, 0), (-1, 0)):
        with raises(tutti.InvalidError, match="mem_at: "):
            comm.mem_at(tutti.MemPlace(*wrong), 1)
    comm.barrier()
    there[0] = 1000
    comm.barrier()
    assert mine.tolist() == [[rank] * 5, [1000] + [rank] * 4, [rank] * 5]
    owner = weakref.ref(tutti._memory._owners[theirs.allocation])
    del mine
    comm.barrier()
    assert owner() is not None and there.tolist() == [1000] + [left] * 4  # what is looked into stays
    comm.barrier()
    del there
    gc.collect()  # what the errors above have in their traces
    assert owner() is None


def shared_memory():
    m = comm.mem_alloc((4, 1000), "f32")
    assert (m == 0).all() and m.shape == (4, 1000)
    m[:] = rank
    comm.all_reduce(m)
    assert (m == sum(range(P))).all()
    part = m[1]
    owner, free, freed = weakref.ref(m), tutti._library.lib.tutti_mem_free, []
    tutti._library.lib.tutti_mem_free = lambda address: freed.append(address) or free(address)
    del m
    comm.all_reduce(part)
    assert (part == sum(range(P)) * P).all()
    del part
    assert owner() is None and len(freed) == 1
    assert comm.mem_alloc(0).size == 0 and len(freed) == 2
    tutti._library.lib.tutti_mem_free = free
    assert comm.mem_alloc(np.int64(3)).shape == (3,)
    if P > 1:
        places()
    for shape in ((-1, -4), (1 << 31, 1 << 31)):
        with raises(tutti.InvalidError, match=r"mem_alloc: a shape of \(.*\) has a negative length, or is beyond all memory"):
            comm.mem_alloc(shape)
    often = np.ones(1 << 16)
    comm.mem_register(often)
    comm.all_reduce(often)
    comm.mem_deregister(often)


for body in (works, own_timeout, unseen, messages, groups, operations, lossy_operation, broken_operation, children, shared_memory, dropped):
    body()
    print("did", body.__name__, flush=True)
comm.destroy()
