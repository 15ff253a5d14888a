"""One rank: mpi4py's types over memory of other elements, arrays in Fortran's order, records, pairs, and no elements."""

import ctypes
import sys

import numpy as np
import tutti
from checks import raises
from tutti import mpi as MPI

comm = MPI.COMM_WORLD
rank, P = comm.rank, comm.size
right, left = (rank + 1) % P, (rank - 1) % P
random = np.random.default_rng(int(sys.argv[1]) if len(sys.argv) > 1 else 1)  # the same on all ranks
RECORD = np.dtype([("i", "i4"), ("x", "f8"), ("text", "S3")])


def of(r, count=6, dtype=RECORD):
    """What rank r has."""
    return np.frombuffer(bytes((17 * r + i) % 251 for i in range(count * np.dtype(dtype).itemsize)), dtype).copy()


def join(arrays):
    """As numpy.concatenate, which would change the byte order."""
    arrays = list(arrays)
    return np.frombuffer(b"".join(a.tobytes() for a in arrays), arrays[0].dtype).copy()


def same(got, expected):
    assert got.tobytes() == expected.tobytes(), (rank, got, expected)


# Bytes of any elements, in each call that moves: whole, a count of bytes, counts and displacements.
for dtype in (RECORD, "f8", "f4", "c16", "i2", "?", "S5", "U2", ">i4", "V7", "M8[s]"):
    count = int(random.integers(1, 9))
    size = np.dtype(dtype).itemsize * count
    for form in (lambda a: [a, MPI.BYTE], lambda a: [a, a.nbytes, MPI.BYTE], lambda a: [a, (a.nbytes, 0), MPI.BYTE]):
        a = of(rank, count, dtype)
        comm.Bcast(form(a), root=P - 1)
        same(a, of(P - 1, count, dtype))
        b = of(99, count, dtype)
        comm.Sendrecv(form(of(rank, count, dtype)), right, recvbuf=form(b), source=left)
        same(b, of(left, count, dtype))
        comm.Sendrecv_replace(form(b), right, source=left)
        same(b, of((left - 1) % P, count, dtype))
    whole = join([of(r, count, dtype) for r in range(P)])
    all_ = np.zeros_like(whole)
    comm.Allgather([of(rank, count, dtype), MPI.BYTE], [all_, size, MPI.BYTE])
    same(all_, whole)
    counts, displs = [size] * P, [size * (P - 1 - r) for r in range(P)]
    all_ = np.zeros_like(whole)
    comm.Allgatherv([of(rank, count, dtype), MPI.BYTE], [all_, (counts, displs), MPI.BYTE])
    same(all_, join([of(P - 1 - r, count, dtype) for r in range(P)]))
    all_ = np.zeros_like(whole)
    comm.Iallgatherv([of(rank, count, dtype), MPI.BYTE], [all_, counts, MPI.BYTE]).Wait()
    same(all_, whole)
    comm.Gatherv([of(rank, count, dtype), MPI.BYTE], [all_, (counts, displs), MPI.BYTE])
    comm.Scatterv([all_, (counts, displs), MPI.BYTE] if rank == 0 else None, [b, MPI.BYTE])
    same(b, of(rank, count, dtype))
    status = MPI.Status()
    requests = [comm.Irecv([b, MPI.BYTE], left, 3), comm.Isend([of(rank, count, dtype), MPI.BYTE], right, 3)]
    MPI.Request.Waitall(requests, [status, MPI.Status()])
    same(b, of(left, count, dtype))
    assert status.Get_count() == size == status.Get_count(MPI.BYTE)
    got = np.zeros_like(whole)
    comm.Ialltoallv([whole, counts, MPI.BYTE], [got, (counts, displs), MPI.BYTE]).Wait()
    same(got, join([of(rank, count, dtype)] * P))

# Also of other buffers than NumPy's, and beside a buffer of bytes.
structures = (type("S", (ctypes.Structure,), {"_fields_": [("a", ctypes.c_int), ("b", ctypes.c_double)]}) * 3)()
structures[2].b = 1.5 * (rank + 1)
comm.Bcast([structures, MPI.BYTE])
assert structures[2].b == 1.5
swapped = (ctypes.c_int.__ctype_be__ * 2)(rank, 7)
comm.Bcast([swapped, MPI.BYTE])
assert list(swapped) == [0, 7]
data = bytearray(16)
comm.Sendrecv([np.array([1.5, rank]), MPI.BYTE], right, recvbuf=data, source=left)
same(np.frombuffer(data), np.array([1.5, left]))
comm.Bcast([np.float64(2.5) if rank == 0 else np.zeros(()), MPI.BYTE])

# Other types of the same size, parts of complex numbers, and characters of texts.
for written, named, letter in (("f8", MPI.LONG, "q"), ("i4", MPI.FLOAT, "f"), ("u2", MPI.SHORT, "i2"), ("f8", MPI.INT64_T, "i8")):
    for dtype in (named, letter):
        a = of(rank, 4, written)
        comm.Bcast([a, 4, dtype], root=P - 1)
        same(a, of(P - 1, 4, written))
a = of(rank, 3, "c16")
comm.Bcast([a, 6, MPI.DOUBLE])
same(a, of(0, 3, "c16"))
text = np.array(["root" if rank == 0 else ""] * 2, "S4")
comm.Bcast([text, MPI.CHAR])
assert text.tolist() == [b"root"] * 2
numbers = np.full(4, rank, "i8")
comm.Allreduce(MPI.IN_PLACE, [numbers.view("f8"), MPI.LONG])  # as integers
assert numbers.tolist() == [sum(range(P))] * 4
bits = np.full(3, 1 << rank, "f4").view("i4")
expected = bits.copy()
for r in range(P):
    expected |= np.full(3, 1 << r, "f4").view("i4")
comm.Allreduce(MPI.IN_PLACE, [bits, MPI.BYTE], MPI.BOR)
same(bits, expected)

for op, name in ((MPI.BAND, "bitwise_and"), (MPI.BOR, "bitwise_or"), (MPI.BXOR, "bitwise_xor"), (tutti.BXOR, "bitwise_xor")):
    for dtype in ("f8", "u1", "S3", RECORD):
        a, got = of(rank, 2 * P, dtype), np.zeros(2 * P, dtype)
        each = a.nbytes // P
        bitwise = getattr(np, name).reduce([of(r, 2 * P, dtype).view("u1") for r in range(P)])
        comm.Allreduce([a, a.nbytes, MPI.BYTE], [got, a.nbytes, MPI.BYTE], op)
        same(got, bitwise)
        got[:] = a
        comm.Iallreduce(MPI.IN_PLACE, [got, (a.nbytes, 0), MPI.BYTE], op).Wait()
        same(got, bitwise)
        comm.Reduce([a, a.nbytes, MPI.BYTE], [got, a.nbytes, MPI.BYTE] if rank == P - 1 else None, op, P - 1)
        comm.Ireduce([a, a.nbytes, MPI.BYTE], [got, a.nbytes, MPI.BYTE] if rank == 0 else None, op).Wait()
        same(got, bitwise)
        block, own = np.zeros(2, dtype), bitwise[rank * each : (rank + 1) * each]
        comm.Reduce_scatter_block([a, each, MPI.BYTE], [block, each, MPI.BYTE], op)
        same(block, own)
        comm.Reduce_scatter([a, a.nbytes, MPI.BYTE], [block, each, MPI.BYTE], [each] * P, op)
        same(block, own)

# What cannot be meant is refused here, and nothing is sent.
x, records = np.zeros(4), of(rank)
for call, message in (
    (lambda: comm.Bcast([x, MPI.FLOAT]), "float64 cannot be read as float32: they have 8 and 4 bytes. Pass MPI.BYTE to move any"),
    (lambda: comm.Bcast([records, MPI.DOUBLE]), "records of 15 bytes cannot be read as float64"),
    (lambda: comm.Bcast(records), r"none of Tutti's.*pass \[array, MPI.BYTE\] to send its bytes"),
    (lambda: comm.Bcast([bytearray(7), MPI.INT]), "7 bytes are no whole number of elements of int32"),
    (lambda: comm.Bcast([np.array([{}]), MPI.BYTE]), "elements are objects"),
    (lambda: comm.Bcast([memoryview(np.array([{}])), MPI.BYTE]), "elements are objects"),
    (lambda: comm.Bcast([of(rank)[::2], MPI.BYTE]), "not C-contiguous"),
    (lambda: comm.Bcast([np.zeros((4, 4))[:2, :2], MPI.BYTE]), "not C-contiguous"),
    (lambda: comm.Bcast([x, 33, MPI.BYTE]), "has 32 elements, but 1 times 33"),
    (lambda: comm.Bcast([object(), MPI.BYTE]), "object is no buffer"),
    (lambda: comm.Allreduce([x, MPI.BYTE], [x.copy(), MPI.BYTE]), "does not work on MPI.BYTE"),
    (lambda: comm.Reduce_scatter_block([np.zeros(P), MPI.BYTE], np.zeros(1)), "does not work on MPI.BYTE"),
    (lambda: comm.Allreduce(x, x.copy(), op=lambda a, b: a), "is no operation"),
):
    with raises(tutti.InvalidError, match=message):
        call()
fixed = np.zeros(2, RECORD)
fixed.flags.writeable = False
if rank != 0:
    with raises(tutti.InvalidError, match="read-only"):
        comm.Bcast([fixed, MPI.BYTE])

# Arrays in Fortran's order are sent in the order of their memory.
for shape in ((3, 4), (2, 3, 4), (1, 5), (4, 1, 2)):
    def grid(r):
        return np.asfortranarray(np.arange(np.prod(shape), dtype="f8").reshape(shape) + 100 * r)

    a = grid(rank)
    comm.Bcast(a, root=P - 1)
    assert (a == grid(P - 1)).all() and a.flags.f_contiguous
    b = np.zeros(shape, order="F")
    comm.Sendrecv(grid(rank), right, recvbuf=[b, MPI.DOUBLE], source=left)
    assert (b == grid(left)).all()
    comm.Allreduce(grid(rank), b)
    assert (b == sum(grid(r) for r in range(P))).all()
    c = np.zeros(shape[::-1])  # as the same memory in C's order
    comm.Sendrecv([grid(rank), MPI.BYTE], right, recvbuf=[c, MPI.BYTE], source=left)
    assert (c.T == grid(left)).all()
    comm.Bcast(memoryview(a))
    assert (a == grid(P - 1)).all()
turned = np.zeros((2, 3), RECORD, order="F")
turned[1, 2] = (rank, 2.5, b"abc")
comm.Bcast([turned, MPI.BYTE])
assert turned[1, 2]["i"] == 0 and turned[1, 2]["text"] == b"abc"

# No elements at all.
for nothing in (np.zeros(0), np.zeros((0, 3), order="F"), np.zeros(0, RECORD), bytearray(), np.zeros((2, 0), RECORD)):
    comm.Bcast([nothing, MPI.BYTE])
    comm.Bcast([nothing, 0, MPI.BYTE])
    comm.Allgather([nothing, MPI.BYTE], [nothing, 0, MPI.BYTE])
    comm.Allgatherv([nothing, MPI.BYTE], [nothing, ([0] * P, [0] * P), MPI.BYTE])
    comm.Sendrecv([nothing, MPI.BYTE], right, recvbuf=[nothing, MPI.BYTE], source=left)
    comm.Sendrecv_replace([nothing, MPI.BYTE], right, source=left)
comm.Allreduce(np.zeros(0), np.zeros(0))
counts = [3 * (r % 2) for r in range(P)]  # of some ranks
all_ = np.zeros(sum(counts), RECORD)
size = RECORD.itemsize
comm.Allgatherv([of(rank, counts[rank]), MPI.BYTE], [all_, [size * n for n in counts], MPI.BYTE])
same(all_, join([of(r, n) for r, n in enumerate(counts)]))

# Pairs of a value and an index.
for named, value in ((MPI.SHORT_INT, "i2"), (MPI.INT_INT, "i4"), (MPI.FLOAT_INT, "f4"), (MPI.LONG_INT, "i8"), (MPI.DOUBLE_INT, "f8")):
    pair = np.dtype([("value", value), ("index", "i4")], align=True)
    for count in (0, 1, 7):
        rows = np.zeros((P, count), pair)
        rows["value"] = random.integers(-2, 3, (P, count))  # many are equal
        rows["index"] = random.integers(0, 5, (P, count))
        expected = {}
        for op, sign in ((MPI.MAXLOC, -1), (MPI.MINLOC, 1)):
            expected[op] = [min(((sign * v, i) for v, i in rows[:, k].tolist())) for k in range(count)]
            expected[op] = [(sign * v, i) for v, i in expected[op]]
            got = np.zeros(count, pair)
            comm.Allreduce([rows[rank], named], [got, named], op=op)
            assert got.tolist() == expected[op], (named, got, expected[op])
            got = np.zeros(count, pair)
            comm.Reduce([rows[rank], count, named], [got, named] if rank == P - 1 else None, op=op, root=P - 1)
            assert got.tolist() == (expected[op] if rank == P - 1 else np.zeros(count, pair).tolist())
            got = rows[rank].copy()
            comm.Allreduce(MPI.IN_PLACE, [got, named], op)
            assert got.tolist() == expected[op]
            assert [comm.allreduce(p, op) for p in rows[rank].tolist()] == expected[op]
    comm.Bcast([rows[rank], named])
flat = np.array([5, rank, rank, 1], "i4")  # an idiom: a value and an index of one type
comm.Allreduce(MPI.IN_PLACE, [flat, 2, MPI.TWOINT], MPI.MAXLOC)
assert flat.tolist() == [5, 0, P - 1, 1]
both = np.zeros(1, pair)
for call in (
    lambda: comm.Allreduce(x, x.copy(), MPI.MAXLOC),
    lambda: comm.Iallreduce([both, MPI.DOUBLE_INT], [both.copy(), MPI.DOUBLE_INT], MPI.MAXLOC),
    lambda: comm.Allreduce([both, MPI.DOUBLE_INT], [both.copy(), MPI.DOUBLE_INT], MPI.SUM),
    lambda: comm.Reduce_scatter_block([np.zeros(P), MPI.DOUBLE], x[:1], MPI.MINLOC),
    lambda: comm.Allreduce(x, x.copy(), MPI.LAND),
):
    with raises(tutti.UnsupportedError, match="pairs|logical_and"):
        call()
with raises(tutti.InvalidError, match="recvbuf has 2 elements and needs 1"):
    comm.Allreduce([both, MPI.DOUBLE_INT], [np.zeros(2, pair), MPI.DOUBLE_INT], MPI.MAXLOC)
# What one rank passes that cannot hold the result is an error on all, and nobody waits for it.
for call, where in ((lambda recv: comm.Allreduce([both, MPI.DOUBLE_INT], recv, MPI.MAXLOC), 0), (lambda recv: comm.Reduce([both, MPI.DOUBLE_INT], recv, MPI.MINLOC, P - 1), P - 1)):
    for wrong, message in (([np.zeros(2, pair), MPI.DOUBLE_INT], "recvbuf has 2 elements and needs 1"), ([bytes(16), MPI.DOUBLE_INT], "recvbuf is read-only")):
        kind, text = (tutti.InvalidError, message) if rank == where else (MPI.Exception, f"raised on rank {where}: .*{message}")
        with raises(kind, match=text):
            call(wrong if rank == where else [both.copy(), MPI.DOUBLE_INT])
with raises(tutti.UnsupportedError if rank == 0 else MPI.Exception, match="works on pairs"):
    comm.Allreduce([both, MPI.DOUBLE_INT] if rank else x, [both.copy(), MPI.DOUBLE_INT], MPI.MAXLOC)
with raises(tutti.InvalidError, match="records of 12 bytes cannot be read as double_int"):
    comm.Bcast([np.zeros(2, [("value", "f8"), ("index", "i4")]), MPI.DOUBLE_INT])
truth = np.array([True, rank == 0, False])
comm.Allreduce(MPI.IN_PLACE, truth, MPI.LAND)
assert truth.tolist() == [True, P == 1, False]
truth = np.array([True, rank == 0, False])
comm.Allreduce(MPI.IN_PLACE, truth, MPI.LOR)
assert truth.tolist() == [True, True, False]
own = np.zeros(1)
comm.Ireduce_scatter_block(np.arange(P, dtype="f8"), own).Wait()
assert own[0] == rank * P
comm.Ireduce_scatter(np.arange(P, dtype="f8"), own, [1] * P).Wait()
assert own[0] == rank * P
comm.Barrier()
