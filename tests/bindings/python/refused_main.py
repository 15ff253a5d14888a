"""One rank: calls whose buffers do not fit are refused with both numbers, nothing is written, and the communicator stays well."""

import copy
import pickle

import numpy as np
import tutti
from checks import raises

comm = tutti.init(timeout=60, name="refusals")
rank, P = comm.rank, comm.size
f4 = lambda n: np.full(n, 7, np.float32)


def refused(pattern, name, *arguments, **options):
    """By the method, by comm.start and in a group."""
    for make in (getattr(comm, name), getattr(comm.start, name)):
        with raises(tutti.InvalidError, match=pattern):
            make(*arguments, **options)
    with raises(tutti.InvalidError, match=pattern), tutti.group():
        comm.barrier()
        getattr(comm, name)(*arguments, **options)


small, counts = f4(1), [2] * P
before = comm.sequence
refused("all_reduce: recv has 1 elements and needs 4: as many as send", "all_reduce", f4(4), small)
refused("all_reduce: recv has 5 elements and needs 4", "all_reduce", f4(4), f4(5))
refused("reduce: recv has 1 elements and needs 4", "reduce", f4(4), small, root=rank)
refused(f"all_gather: recv has 1 elements and needs {4 * P}: 4 of send for each of {P} ranks", "all_gather", f4(4), small)
refused(f"all_gather: recv has {P + 1} elements, which are no {P} equal blocks", "all_gather", None, f4(P + 1))
refused(f"reduce_scatter: send has 1 elements and needs {4 * P}: 4 of recv for each of {P} ranks", "reduce_scatter", small, f4(4))
refused(f"gather: recv has 1 elements and needs {4 * P}", "gather", f4(4), small, rank)
refused(f"scatter: send has 1 elements and needs {4 * P}", "scatter", small, f4(4), rank)
refused("all_to_all: recv has 1 elements and needs", "all_to_all", f4(2 * P), small)
refused(f"all_to_all: recv has {P + 1} elements, which are no", "all_to_all", f4(P + 1), f4(P + 1))
refused(f"all_gatherv: recv has 1 elements and needs {2 * P}: its last block ends there", "all_gatherv", f4(2), small, counts)
refused(rf"all_gatherv: send has 1 elements and needs 2: counts\[{rank}\], of this rank", "all_gatherv", small, f4(2 * P), counts)
refused("all_gatherv: recv has 6 elements and needs 12", "all_gatherv", f4(2), f4(6), counts, [10] * P)
refused(f"counts has {P + 1} numbers and needs {P}, one for each rank", "all_gatherv", f4(2), f4(99), counts + [1])
refused(f"offsets has 1 numbers and needs {P}", "all_gatherv", f4(2), f4(99), counts, [1])
refused("counts has a negative number", "all_gatherv", f4(2), f4(99), [-1] * P)
refused("reduce_scatterv: send has 1 elements and needs", "reduce_scatterv", small, f4(2), counts)
refused("reduce_scatterv: recv has 1 elements and needs 2", "reduce_scatterv", f4(2 * P), small, counts)
refused("gatherv: recv has 1 elements and needs", "gatherv", f4(2), small, counts, root=rank)
refused("scatterv: send has 1 elements and needs", "scatterv", small, f4(2), counts, root=rank)
refused("scatterv: recv has 1 elements and needs 2", "scatterv", f4(2 * P), small, counts, root=(rank + 1) % P)
refused("all_to_allv: recv has 1 elements and needs", "all_to_allv", f4(2 * P), counts, small, counts)
refused("all_to_allv: send has 1 elements and needs", "all_to_allv", small, counts, f4(2 * P), counts)
refused("send_counts has 0 numbers", "all_to_allv", f4(2), [], f4(2 * P), counts)

refused("send has elements of float32 and recv of float64", "all_reduce", f4(4), np.zeros(4))
refused("send has elements of int32 and recv of float32: they must be equal", "all_gather", np.zeros(1, np.int32), f4(P))
refused("send has elements of float32 and recv of int32", "reduce_scatterv", f4(2 * P), np.zeros(2, np.int32), counts)
refused("recv is read-only, and the result is written there", "all_reduce", f4(3), bytes(12), dtype="f32")
refused("buffer is read-only", "broadcast", np.broadcast_to(np.float32(1), ()), (rank + 1) % P)
refused("recv: buffer is read-only", "recv", bytes(3), 0)
refused("send: the array of shape .* is not C-contiguous", "all_reduce", f4(8)[::2])
refused("prod does not work on complex numbers", "all_reduce", np.zeros(2, np.complex64), op=tutti.PROD)
refused("avg does not work on bools", "all_reduce", np.zeros(2, bool), op=tutti.AVG)
refused("'sum' is no operation", "all_reduce", f4(1), op="sum")
# By the library:
refused("band does not work on f32", "all_reduce", f4(1), op=tutti.BAND)
refused("root 99 is not in 0..", "broadcast", f4(1), 99)
refused("peer 99 is not in 0..", "send", f4(1), 99)
refused("call.tag is -1", "recv", f4(1), 0, -1)
refused("timeout of -1 s", "barrier", timeout=-1)
# By nobody but the package: ctypes would take the lower 32 bits, and int() the whole part.
refused("send: tag is 4294967297: it must fit in 32 bits", "send", f4(1), 0, 2**32 + 1)
refused("recv: tag is 4294967297: it must fit in 32 bits", "recv", f4(1), 0, 2**32 + 1)
big = 2**32 + rank  # its lower half is this rank
for name, arguments in (("broadcast", ()), ("reduce", ()), ("gather", (f4(P),)), ("scatter", (f4(1),))):
    refused(f"{name}: root is {big}: it must fit in 32 bits", name, f4(P), *arguments, root=big)
for name in ("gatherv", "scatterv"):
    refused(f"{name}: root is {big}: it must fit in 32 bits", name, f4(2 * P), f4(2 * P), counts, root=big)
for name in ("send", "recv"):
    refused(f"{name}: peer is {big}: it must fit in 32 bits", name, f4(1), big)
with raises(tutti.InvalidError, match=f"create_from: a rank is {big}: it must fit in 32 bits"):
    comm.create_from([big])
for make, what in ((lambda n: comm.split(n), "split: color"), (lambda n: comm.split(0, n), "split: key"), (comm.agree, "agree: flag")):
    with raises(tutti.InvalidError, match=f"{what} is -2147483649: it must fit in 32 bits"):
        make(-(2**31) - 1)
for make in (lambda: comm.all_gatherv(f4(2), f4(2 * P), [2.5] * P), lambda: comm.mem_alloc(2.5)):
    with raises(TypeError, match="'float' object cannot be interpreted as an integer"):
        make()
for make in (comm, comm.start):
    with raises(TypeError, match="unexpected keyword: tiemout"):
        make.barrier(tiemout=3)
    for options, message in (({"label": 3}, "barrier: label is of type int: it must be a str"), ({"label": b"x"}, "of type bytes")):
        with raises(TypeError, match=message):
            make.barrier(**options)
with raises(TypeError, match="unexpected keyword: done"):
    comm.barrier(done=print)
with raises(TypeError, match="done is of type int: it must be a function"):
    comm.start.barrier(done=3)
with raises(TypeError, match="name is of type int: it must be a str"):
    comm.split(0, name=3)
with raises(tutti.InvalidError, match="its calls have one work"), tutti.group():
    comm.start.barrier()
# C's texts would end there: a secret, before its first character.
for make, what in (
    (lambda: comm.barrier(label="a\0b"), "barrier: label"),
    (lambda: comm.split(0, name="\0"), "name"),
    (lambda: tutti.init(secret="\0secret", world_size=1), "secret"),
    (lambda: tutti.op_create("\0", max), "op_create: name"),
    (lambda: tutti.rendezvous_close("tcp://\0"), "rendezvous_close: url"),
):
    with raises(tutti.InvalidError, match=f"{what} has a NUL character"):
        make()
with raises(TypeError, match="rendezvous_close: url is of type bytes"):
    tutti.rendezvous_close(b"tcp://")
with raises(TypeError, match="op_create: function is of type NoneType: it must be one of two arrays"):
    tutti.op_create("none", None)
for scalar, dtype in ((2.5, "i32"), (float("inf"), "i32"), (float("nan"), "i8"), (300, "u8"), (-1, "u8"), ("2", "f32"), (1e6, "f16")):
    with raises(tutti.InvalidError, match=f"op_create_scaled: {scalar!r} is no .*{dtype[1:]}"):
        tutti.op_create_scaled(scalar, dtype)
tutti.op_create_scaled(2.0, "i32").destroy()

# A copy would be destroyed too, and in another process its handle is an address of nothing.
with tutti.op_create_scaled(2, "f32") as double:
    for copied, what in ((comm, "a communicator"), (double, "an operation of op_create")):
        for make in (copy.copy, copy.deepcopy, pickle.dumps):
            with raises(TypeError, match=f"{what} is of one process: it is neither copied nor pickled"):
                make(copied)
assert copy.deepcopy(tutti.SUM) is tutti.SUM is pickle.loads(pickle.dumps(tutti.SUM))

assert (small == 7).all() and comm.sequence == before and comm.failure is None, "a refused call has done something"
x = np.arange(3, dtype=np.float32)
comm.all_reduce(x)
assert (x == np.arange(3) * P).all()

# Calls that the ranks make differently: the message has both.
with raises(tutti.MismatchError, match=r"(?s)(all_reduce.*broadcast|broadcast.*all_reduce)"):
    if rank == 0:
        comm.all_reduce(x)
    else:
        comm.broadcast(x)
    comm.barrier()
assert isinstance(comm.failure, tutti.MismatchError)
comm.destroy()
comm.destroy()
with raises(tutti.InvalidError, match="was destroyed"):
    comm.barrier()
