"""One rank: every collective against NumPy, with random sizes, types, offsets in memory, in place and not, at once and in flight."""

import sys

import numpy as np
import tutti

seed = int(sys.argv[1])
comm = tutti.init(timeout=60)
rank, P = comm.rank, comm.size
shared = np.random.default_rng(seed)  # the same numbers on all ranks, in the same order

DTYPES = ["f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "c8", "c16", "?"]
OPS = {"sum": (tutti.SUM, np.add), "prod": (tutti.PROD, np.multiply), "min": (tutti.MIN, np.minimum), "max": (tutti.MAX, np.maximum)}


def memory(count, dtype):
    """Random bytes around it are looked at afterwards; it begins at any address."""
    dtype = np.dtype(dtype)
    first = int(np.random.randint(0, 9))
    raw = np.full(first + count * dtype.itemsize + 16, 0xA5, np.uint8)
    view = raw[first : first + count * dtype.itemsize].view(dtype)
    around.append((raw, first, count * dtype.itemsize))
    return view


around = []


def untouched():
    for raw, first, used in around:
        assert (raw[:first] == 0xA5).all() and (raw[first + used :] == 0xA5).all(), "written beside a buffer"
    around.clear()


def inputs(counts, dtype):
    """The elements of every rank. Small integers: sums are exact in any order."""
    values = [shared.integers(0, 2 if dtype == "?" else 4, n) for n in counts]
    if np.dtype(dtype).kind == "c":
        values = [v + 1j * v[::-1] for v in values]
    return [v.astype(dtype) for v in values]


def copy(values):
    m = memory(values.size, values.dtype)
    m[:] = values
    return m


def result(recv, expected, what):
    assert recv.dtype == expected.dtype and recv.tobytes() == expected.tobytes(), f"rank {rank}: {what}: {recv} and not {expected}"


def do(name, *arguments, **options):
    """As a blocking call, as a work, or in a group."""
    how = int(shared.integers(0, 3))
    if how == 0:
        getattr(comm, name)(*arguments, **options)
    elif how == 1:
        getattr(comm.start, name)(*arguments, **options).wait()
    else:
        with tutti.group():
            getattr(comm, name)(*arguments, **options)


def reduced(all_values, name):
    total = all_values[0]
    for values in all_values[1:]:
        total = OPS[name][1](total, values, dtype=total.dtype)
    return total


def op_for(dtype):
    return "sum" if np.dtype(dtype).kind == "c" else str(shared.choice(list(OPS)))


def pick(n):
    return int(shared.integers(0, n))


def reductions(n, dtype):
    op = op_for(dtype)
    number = OPS[op][0]
    x = inputs([n] * P, dtype)
    send, recv = copy(x[rank]), memory(n, dtype)
    do("all_reduce", send, recv, number)
    result(recv, reduced(x, op), f"all_reduce {op}")
    do("all_reduce", send, op=number)
    result(send, reduced(x, op), f"all_reduce {op} in place")
    root = pick(P)
    send, recv = copy(x[rank]), memory(n if rank == root else 0, dtype)
    do("reduce", send, recv, number, root)
    if rank == root:
        result(recv, reduced(x, op), f"reduce {op}")
    do("reduce", send, op=number, root=root)
    result(send, reduced(x, op) if rank == root else x[rank], f"reduce {op} in place")
    x = inputs([n * P] * P, dtype)
    send, recv, mine = copy(x[rank]), memory(n, dtype), slice(rank * n, rank * n + n)
    do("reduce_scatter", send, recv, number)
    result(recv, reduced(x, op)[mine], f"reduce_scatter {op}")
    do("reduce_scatter", send, op=number)
    result(send[mine], reduced(x, op)[mine], f"reduce_scatter {op} in place")


def moves(n, dtype):
    x, root = inputs([n] * P, dtype), pick(P)
    buffer = copy(x[rank])
    do("broadcast", buffer, root)
    result(buffer, x[root], "broadcast")
    whole, send, recv = np.concatenate(x), copy(x[rank]), memory(n * P, dtype)
    do("all_gather", send, recv)
    result(recv, whole, "all_gather")
    recv[:] = 0
    recv[rank * n : rank * n + n] = send
    do("all_gather", None, recv)
    result(recv, whole, "all_gather in place")
    recv = memory(n * P, dtype) if rank == root else None
    do("gather", send, recv, root)
    if rank == root:
        result(recv, whole, "gather")
        recv[:] = 0
        recv[rank * n : rank * n + n] = send
    do("gather", None if rank == root else send, recv, root)
    if rank == root:
        result(recv, whole, "gather in place")
    own = memory(n, dtype)
    do("scatter", copy(whole) if rank == root else None, own, root)
    result(own, x[rank], "scatter")
    do("scatter", copy(whole) if rank == root else None, None if rank == root else own, root)
    x = inputs([n * P] * P, dtype)
    expected = np.concatenate([v[rank * n : rank * n + n] for v in x])
    send, recv = copy(x[rank]), memory(n * P, dtype)
    do("all_to_all", send, recv)
    result(recv, expected, "all_to_all")
    do("all_to_all", None, send)
    result(send, expected, "all_to_all in place")


def layout(counts):
    """Offsets with gaps, or None for packed; where blocks are; how long the buffer is."""
    gaps = shared.integers(0, 3, len(counts)) if pick(2) else np.zeros(len(counts), int)
    starts = [int(s) for s in np.cumsum(gaps) + np.concatenate([[0], np.cumsum(counts[:-1])])]
    return (starts if gaps.any() else None), starts, starts[-1] + counts[-1] if counts else 0


def spread(blocks, starts, length, dtype):
    out = memory(length, dtype)
    out[:] = 0
    for start, block in zip(starts, blocks):
        out[start : start + block.size] = block
    return out


def with_counts(n, dtype):
    counts = [int(c) for c in shared.integers(0, n + 1, P)]
    offsets, starts, length = layout(counts)
    x, root, op = inputs(counts, dtype), pick(P), op_for(dtype)
    expected = spread(x, starts, length, dtype)
    recv = spread([], [], length, dtype)
    do("all_gatherv", copy(x[rank]), recv, counts, offsets)
    result(recv, expected, "all_gatherv")
    recv = spread([x[rank]], [starts[rank]], length, dtype)
    do("all_gatherv", None, recv, counts, offsets)
    result(recv, expected, "all_gatherv in place")
    recv = spread([], [], length, dtype)
    do("gatherv", copy(x[rank]), recv if rank == root else None, counts, offsets, root)
    if rank == root:
        result(recv, expected, "gatherv")
        recv = spread([x[rank]], [starts[rank]], length, dtype)
    do("gatherv", None if rank == root else copy(x[rank]), recv if rank == root else None, counts, offsets, root)
    if rank == root:
        result(recv, expected, "gatherv in place")
    own = memory(counts[rank], dtype)
    do("scatterv", expected if rank == root else None, own, counts, offsets, root)
    result(own, x[rank], "scatterv")
    own[:] = 0
    do("scatterv", expected if rank == root else None, None if rank == root else own, counts, offsets, root)
    if rank != root:
        result(own, x[rank], "scatterv in place")
    result(expected, spread(x, starts, length, dtype), "scatterv's send")
    x, mine = inputs([length] * P, dtype), slice(starts[rank], starts[rank] + counts[rank])
    send, own = copy(x[rank]), memory(counts[rank], dtype)
    do("reduce_scatterv", send, own, counts, offsets, OPS[op][0])
    result(own, reduced(x, op)[mine], f"reduce_scatterv {op}")
    do("reduce_scatterv", send, None, counts, offsets, OPS[op][0])
    result(send[mine], reduced(x, op)[mine], f"reduce_scatterv {op} in place")
    table = shared.integers(0, n + 1, (P, P))
    x = [inputs(list(row), dtype) for row in table]
    sends, recvs = [int(c) for c in table[rank]], [int(c) for c in table[:, rank]]
    layouts = [(layout([int(c) for c in table[r]]), layout([int(c) for c in table[:, r]])) for r in range(P)]
    (send_offsets, at, length), (recv_offsets, to, length_to) = layouts[rank]
    recv = spread([], [], length_to, dtype)
    do("all_to_allv", spread(x[rank], at, length, dtype), sends, recv, recvs, send_offsets, recv_offsets)
    result(recv, spread([x[r][rank] for r in range(P)], to, length_to, dtype), "all_to_allv")


for round in range(12):
    size = int(shared.choice([0, 1, 3, 50, 3000]))
    for body in (reductions, moves, with_counts):
        body(size, str(shared.choice(DTYPES)))
        untouched()
assert comm.sequence > 0
before = comm.stats.collectives
comm.barrier()
assert comm.stats.collectives == before + 1
comm.destroy()
