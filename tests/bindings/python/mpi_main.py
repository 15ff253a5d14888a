"""One rank: a program of mpi4py's kind, with each form of its buffers."""

import math
import pickle

import numpy as np
import tutti
from checks import raises
from tutti import _mpi_requests
from tutti import mpi as MPI

comm = MPI.COMM_WORLD
rank, P = comm.Get_rank(), comm.Get_size()
assert (comm.rank, comm.size) == (rank, P) and MPI.Is_initialized()
right, left = (rank + 1) % P, (rank - 1) % P
total = sum(range(P))


def equal(got, expected):
    assert np.array_equal(got, expected), (rank, got, expected)


def spin(request):
    while not request.Test():
        pass


x, y = np.full(4, rank, "d"), np.zeros(4)
comm.Allreduce(x, y)
equal(y, [total] * 4)
comm.Allreduce([x, MPI.DOUBLE], [y, MPI.DOUBLE], op=MPI.MAX)
equal(y, [P - 1] * 4)
comm.Allreduce(MPI.IN_PLACE, x)
equal(x, [total] * 4)
comm.Allreduce([y, 2, MPI.DOUBLE], [x, 2, MPI.DOUBLE])
equal(x, [P * (P - 1)] * 2 + [total] * 2)
comm.Iallreduce(MPI.IN_PLACE, y, MPI.MIN).Wait()
b = bytearray(b"root" if rank == P - 1 else 4)
comm.Bcast([b, MPI.BYTE], root=P - 1)
assert b == b"root"
comm.Ibcast(b).Wait()
y[:] = rank
comm.Reduce(y, x if rank == 0 else None, root=0)
if rank == 0:
    equal(x, [total] * 4)
comm.Reduce(MPI.IN_PLACE if rank == 0 else y, y if rank == 0 else None)
equal(y, [total if rank == 0 else rank] * 4)

mine, all_ = np.array([rank, -rank], "i"), np.zeros(2 * P, "i")
expected = np.array([[r, -r] for r in range(P)]).ravel()
comm.Allgather(mine, all_)
equal(all_, expected)
all_[:] = 0
all_[2 * rank : 2 * rank + 2] = mine
comm.Allgather(MPI.IN_PLACE, all_)
equal(all_, expected)
comm.Allgather([mine, 1, MPI.INT], [all_, 1, MPI.INT])
equal(all_[:P], range(P))
comm.Iallgather(mine, all_).Wait()
out = np.zeros(2 * P, "i") if rank == 0 else None
comm.Gather(mine, out)
if rank == 0:
    equal(out, expected)
comm.Scatter(out, mine)
equal(mine, [rank, -rank])
other = "not looked at" if rank else None  # of the side that only the root has
comm.Gather(mine, out if rank == 0 else other)
comm.Gather(mine, [out, 2, MPI.INT] if rank == 0 else [mine, 99, MPI.INT])
comm.Gatherv(mine, out if rank == 0 else other)
if rank == 0:
    equal(out, expected)
comm.Scatter(out if rank == 0 else other, mine)
comm.Scatterv(out if rank == 0 else other, mine)
equal(mine, [rank, -rank])
comm.Reduce(mine, mine.copy() if rank == 0 else other)
comm.Scatter([out, 2, MPI.INT] if rank == 0 else None, [mine, MPI.INT])
comm.Reduce_scatter_block(np.arange(2 * P, dtype="i"), mine)
equal(mine, [2 * rank * P, (2 * rank + 1) * P])
whole = np.arange(2 * P, dtype="i")
comm.Reduce_scatter_block(MPI.IN_PLACE, whole)
equal(whole[:2], mine)
comm.Alltoall(np.full(P, rank, "i"), all_[:P].reshape(P))
equal(all_[:P], range(P))

# Those that return at once.
mine, all_, whole = np.full(2, rank, "i"), np.zeros(2 * P, "i"), np.repeat(np.arange(P, dtype="i"), 2)
comm.Ibarrier().Wait()
comm.Igather(mine, all_ if rank == P - 1 else None, root=P - 1).Wait()
equal(all_, whole if rank == P - 1 else 0 * whole)
comm.Iscatter(whole if rank == P - 1 else other, mine, root=P - 1).Wait()
equal(mine, [rank] * 2)
comm.Ialltoall(all_ * 0 + rank, all_).Wait()
equal(all_, whole)
comm.Ireduce(mine, all_[:2] if rank == 0 else None, op=MPI.MAX).Wait()
comm.Ireduce(MPI.IN_PLACE if rank == 0 else mine, all_[2:4] if rank == 0 else None).Wait() if P > 1 else None
if rank == 0:
    equal(all_[:2], [P - 1] * 2)
    equal(all_[2:4], [1 + total] * 2 if P > 1 else [])

counts = [r + 1 for r in range(P)]
displs = [sum(counts[:r]) + r for r in range(P)]  # gaps of one
own = np.full(rank + 1, rank, "f")
spread = np.full(sum(counts) + P - 1, -1, "f")
for r in range(P):
    spread[displs[r] : displs[r] + counts[r]] = r
for form in (lambda a: [a, counts, displs, MPI.FLOAT], lambda a: [a, (counts, displs)], lambda a: [a, (counts, displs), "f"]):
    got = np.full_like(spread, -1)
    comm.Allgatherv(own, form(got))
    equal(got, spread)
    got[:] = -1
    comm.Gatherv(own, form(got) if rank == 0 else None)
    if rank == 0:
        equal(got, spread)
    part = np.zeros(rank + 1, "f")
    comm.Scatterv(form(spread) if rank == 0 else None, part)
    equal(part, own)
packed = np.zeros(sum(counts), "f")
comm.Allgatherv(own, [packed, counts])
equal(packed, np.repeat(range(P), counts))
for of_numpy in (np.array(counts), list(np.array(counts))):  # of two ranks no (counts, displacements)
    packed[:] = -1
    comm.Allgatherv(own, [packed, of_numpy])
    equal(packed, np.repeat(range(P), counts))
comm.Reduce_scatter(packed, part, counts)
equal(part, own * P)
sends, recvs = [r + 1 for r in range(P)], [rank + 1] * P
got = np.zeros(P * (rank + 1), "q")
comm.Alltoallv([np.full(sum(sends), rank, "q"), sends], [got, recvs, None, MPI.LONG])
equal(got, np.repeat(range(P), rank + 1))

status = MPI.Status()
requests = [comm.Irecv(y, source=left, tag=7), comm.Isend(np.full(4, rank, "d"), dest=right, tag=7)]
MPI.Request.Waitall(requests, [status, MPI.Status()])
assert (status.Get_source(), status.Get_tag(), status.Get_count(), status.count) == (left, 7, 32, 32) and MPI.Request.Testall(requests)
assert (status.Get_count(MPI.DOUBLE), status.Get_count(MPI.INT)) == (4, 8)
assert status.Get_count(MPI.DOUBLE_COMPLEX) == 2 and status.Get_error() == 0
status.count = 6
assert status.Get_count(MPI.INT) == MPI.UNDEFINED
assert [request.test() for request in requests] == [(True, None)] * 2 and requests[0].wait() is None
equal(y, [left] * 4)
comm.Sendrecv(x, right, recvbuf=y, source=MPI.ANY_SOURCE, status=status)
assert status.source == left
if rank == 0 and P > 1:
    comm.Send([x, MPI.DOUBLE], dest=1, tag=3)
elif rank == 1:
    comm.Recv(y, tag=3, status=status)
    assert status.Get_source() == 0
for receive in (comm.Recv, comm.Irecv, lambda y, tag: comm.Sendrecv(x, right, recvbuf=y, source=left, recvtag=tag)):
    with raises(tutti.UnsupportedError, match="names its tag, which is 0 where none is given"):
        receive(y, tag=MPI.ANY_TAG)
# Of a Sendrecv whose send is refused nothing is left that takes the next message.
y[:] = -1
for wrong, message in ((dict(dest=99), "peer 99 is not in"), (dict(dest=right, sendtag=2**32), "tag is 4294967296")):
    with raises(tutti.InvalidError, match=message):
        comm.Sendrecv(x, recvbuf=y, source=left, **wrong)
assert not comm.tutti._state.flights
z = np.zeros(4)
comm.Sendrecv(np.full(4, 10 + rank, "d"), right, recvbuf=z, source=left, status=status)
equal(z, [10 + left] * 4)
equal(y, [-1] * 4)
assert (status.source, status.Get_count(MPI.DOUBLE)) == (left, 4)
# Of a part nothing else is touched.
for part in ([2, 1], [2, 1, MPI.DOUBLE], [(2, 1)], [(2, 1), "d"], [np.int64(2), np.int64(1)]):
    y[:] = -1 if rank else [4, 5, 6, 7]
    comm.Bcast([y, *part])
    equal(y, [-1, 5, 6, -1] if rank else [4, 5, 6, 7])
y[:] = -1 if rank else [4, 5, 6, 7]
comm.Bcast([y, None, 1])
equal(y, [-1 if rank else 4, 5, 6, 7])
for part in ([5], [4, 1], [1, -1], [-1], [-1, 1], [1, 5], [None, 5], [None, -1]):
    with raises(tutti.InvalidError, match=r"has 4 elements, but 1 times (-?\d|None) are needed from element -?\d on"):
        comm.Bcast([y, *part])
for part in ([[1, 1]], [[1] * P], [(1, 1, 1)], [2, [0, 1]], [([1], [1])]):
    with raises(tutti.InvalidError, match="this buffer has one count and one displacement"):
        comm.Send([y, *part], rank)
for wrong in ([], [y, 1, 1, 1], [y, 1, 1, 1, "d"]):
    with raises(tutti.InvalidError, match="NoneType is no buffer|at most"):
        comm.Bcast(wrong)
# A call without a buffer for its result is none in place.
before = y.copy()
for nothing in (None, MPI.IN_PLACE):
    for call in (comm.Allreduce, comm.Iallreduce, lambda x, y: comm.Reduce(x, y, root=rank)):
        with raises(tutti.InvalidError, match=f"recvbuf is {nothing}: pass a buffer"):
            call(y, nothing)
equal(y, before)
own = np.full(2, rank, "q")
both = np.zeros(2 * P, "q")
comm.Allgatherv(own, [both, 2])  # of each rank
equal(both, np.repeat(range(P), 2))
if P > 1:
    with raises(tutti.InvalidError, match=f"without counts: the buffer has {2 * P - 1} elements, which are no {P} equal"):
        comm.Allgatherv(own, both[1:])
with raises(MPI.Exception, match="cannot be read as float32"):
    comm.Bcast([y, MPI.FLOAT])

assert comm.bcast({"from": rank} if rank == 0 else None) == {"from": 0}
assert comm.allgather("x" * rank) == ["x" * r for r in range(P)]
assert comm.gather(rank, root=P - 1) == (list(range(P)) if rank == P - 1 else None)

# Objects: each call, on a root that is not the first, and between neighbours; PROC_NULL is nobody.
assert comm.scatter([{"to": r} for r in range(P)] if rank == P - 1 else None, root=P - 1) == {"to": rank}
assert comm.scatter(np.arange(P) if rank == 0 else None) == rank and comm.scatter(iter(range(P)) if rank == 0 else None) == rank
assert comm.allreduce(rank) == total and comm.allreduce([rank]) == list(range(P))
assert comm.allreduce("a" * rank, op=MPI.MAX) == "a" * (P - 1)
assert comm.scan(rank) == sum(range(rank + 1)) and comm.exscan([rank]) == (list(range(rank)) or None)
assert comm.reduce(rank + 1, op=MPI.PROD, root=P - 1) == (math.factorial(P) if rank == P - 1 else None)
with raises(tutti.UnsupportedError, match="on objects: use SUM, PROD"):
    comm.allreduce(1, op=tutti.AVG)
if rank == 0 and P > 1:
    comm.send({"size": "x" * 100000}, dest=1, tag=11)
elif rank == 1:
    assert comm.recv(source=0, tag=11, status=status) == {"size": "x" * 100000} and status.Get_source() == 0
assert comm.sendrecv((rank, None), right, source=left) == (left, None)
assert comm.sendrecv(rank, right) == left  # from anybody
assert comm.sendrecv("x" * 1000000, rank, source=rank) == "x" * 1000000  # to itself
if rank == 0:  # a sendrecv meets a recv and a send: the peer receives all before it sends
    if P > 1:
        assert comm.sendrecv("there" * 100000, 1, source=P - 1, status=status) == "there" * 100000 + "back" * (P - 1)
        assert status.Get_source() == P - 1 and status.Get_count() > 500000
else:
    comm.send(comm.recv(source=rank - 1) + "back", (rank + 1) % P)

# Objects under way: receives go on in another order than the messages come in, and sends wait for nothing.
sends = [comm.isend([rank, i] * (1 + 20000 * (i % 2)), right, tag=5) for i in range(6)]
receives = [comm.irecv(source=left if i % 2 else MPI.ANY_SOURCE, tag=5) for i in range(6)]
for i in (4, 5, 1, 0):
    assert receives[i].wait(status) == [left, i] * (1 + 20000 * (i % 2)) and status.Get_source() == left
while not receives[2].test(status)[0]:
    pass
assert status.Get_source() == left and receives[2].test() == (True, [left, 2]) and receives[3].Test() in (True, False)
assert MPI.Request.waitall(sends + receives[3:4]) == [None] * 6 + [[left, 3] * 20001]
assert sends[0].test() == (True, None) and MPI.Request.Testall(sends)
# The first of several: each is found once.
requests = [comm.irecv(source=left, tag=20), comm.irecv(source=MPI.PROC_NULL), MPI.REQUEST_NULL, comm.Irecv(z, left, 21)]
assert MPI.Request.Testany(requests, status) == (1, True) and status.source == MPI.PROC_NULL
assert MPI.Request.Testany(requests) == (MPI.UNDEFINED, False) and MPI.Request.testall(requests) == (False, None)
comm.Barrier()
comm.Send(np.full(4, rank, "d"), right, 21)
assert MPI.Request.Waitany(requests, status) == 3 and (status.source, status.tag) == (left, 21)
equal(z, [left] * 4)
comm.Barrier()
comm.send({"from": rank}, right, 20)
assert MPI.Request.waitany(requests) == (0, {"from": left}) and MPI.Request.waitany(requests) == (MPI.UNDEFINED, None)
assert MPI.Request.testall(requests) == (True, [{"from": left}, None, None, None])
sent = [comm.isend(1, right, 22), comm.Isend(x, right, 23)]
assert sorted(MPI.Request.Waitany(sent) for _ in range(2)) == [0, 1] and MPI.Request.Waitany(sent) == MPI.UNDEFINED
assert comm.recv(source=left, tag=22) == 1
comm.Recv(z, left, 23)
assert MPI.Request.Waitany([]) == MPI.UNDEFINED and MPI.Request.Testany([]) == (MPI.UNDEFINED, True)
statuses = []
MPI.Request.Waitall(requests, statuses)
assert [s.source for s in statuses] == [left, MPI.PROC_NULL, MPI.ANY_SOURCE, left]
# A send goes on while the peer waits for its own one, with a receive begun before.
big = bytes(3000000)
for ends in (
    lambda send, receive: (send.wait(), receive.wait()),
    lambda send, receive: MPI.Request.waitall([send, receive]),
    lambda send, receive: (spin(send), receive.wait()),
):
    receive = comm.irecv(source=left, tag=24)
    assert ends(comm.isend(big, right, 24), receive)[1] == big
receive = comm.irecv(source=left, tag=24)
comm.send(big, right, 24)
assert receive.wait() == big and not _mpi_requests._begun.receives
# An object that cannot be sent leaves no receive.
with raises((pickle.PicklingError, AttributeError), match="ickle"):
    comm.sendrecv(lambda: 1, right, source=left)
assert not comm.tutti._state.flights
assert comm.sendrecv(rank, right, source=left) == left
pending = comm.irecv(source=right, tag=6)
assert pending.test() == (False, None)
pending.Cancel()
with raises(tutti.AbortedError):
    pending.wait()
assert comm.irecv(source=MPI.PROC_NULL).wait() is None and comm.isend(1, MPI.PROC_NULL).wait() is None
assert comm.alltoall([(rank, r) * r for r in range(P)]) == [(r, rank) * rank for r in range(P)]
with raises(tutti.InvalidError, match=f"{P + 1} objects for {P} ranks"):
    comm.alltoall([0] * (P + 1))
for call in (comm.gather, comm.reduce):
    with raises(tutti.InvalidError, match=f"root is {P}, and the ranks are 0 to {P - 1}"):
        call(1, root=P)
lower = rank - 1 if rank else MPI.PROC_NULL
upper = rank + 1 if rank + 1 < P else MPI.PROC_NULL
assert comm.sendrecv(rank, upper, source=lower) == (rank - 1 if rank else None)
y[:] = -1
comm.Sendrecv(np.full(4, rank, "d"), upper, recvbuf=y, source=lower, status=status)
equal(y, [rank - 1 if rank else -1] * 4)
assert status.Get_source() == lower and status.Get_count(MPI.DOUBLE) == (4 if rank else 0)
comm.Send(x, MPI.PROC_NULL)
comm.send(x, MPI.PROC_NULL)
comm.Recv(y, MPI.PROC_NULL, status=status)
assert (status.source, status.tag, status.Get_count()) == (MPI.PROC_NULL, MPI.ANY_TAG, 0)
assert comm.recv(source=MPI.PROC_NULL) is None
nothing = [comm.Isend(x, MPI.PROC_NULL), comm.Irecv(y, MPI.PROC_NULL)]
MPI.Request.Waitall(nothing, [MPI.Status(), status])
assert status.source == MPI.PROC_NULL and nothing[0].Test()
with tutti.group():
    with raises(tutti.InvalidError, match="an object is not sent in a group"):
        comm.send(1, MPI.PROC_NULL)

half = comm.Split(rank % 2, key=-rank)
assert half.size == (P + 1 - rank % 2) // 2
copy = half.Dup()
copy.Barrier()
copy.Free()
half.Free()
with comm.Split_type(MPI.COMM_TYPE_SHARED).tutti as node:
    assert (node.size, node.rank) == (comm.tutti.local_size, comm.tutti.local_rank)
assert comm.Split_type(MPI.UNDEFINED) is None
with raises(tutti.UnsupportedError, match="Split_type of 7"):
    comm.Split_type(7)
assert comm.Split(MPI.UNDEFINED) is None and MPI.COMM_SELF.size == 1
comm.Barrier()
assert not MPI.Is_finalized()
MPI.Finalize()
assert MPI.Is_finalized()
