"""Every operation, dtype and op of tutti.torch against a plain computation, on 2 and 3 ranks."""

import itertools
import warnings

import torch
import torch.distributed as dist
from torch_ranks import raised, run, run_all, start

from tutti.errors import Error, InvalidError, UnsupportedError
from tutti.torch.tensors import premul_factor

warnings.filterwarnings("ignore", "ComplexHalf")
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
COMPLEX = [torch.complex64, torch.complex128, torch.complex32]
SMALL_FLOATS = [getattr(torch, n) for n in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, n)]
UNSIGNED = [getattr(torch, n) for n in ("uint16", "uint32", "uint64") if hasattr(torch, n)]
ALL = FLOATS + INTEGERS + COMPLEX + SMALL_FLOATS + UNSIGNED + [torch.bool]
OPS = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]
COUNT = 37


def values(dtype, rank: int, count: int = COUNT):
    """Small numbers, so that every order of a sum has the same bits; of both signs where there are such."""
    numbers = torch.arange(count, dtype=torch.int64) * (rank + 2) % 5 + (torch.arange(count) + rank) % 2
    if dtype is torch.bool:
        return numbers % 2 == 0
    if dtype.is_complex:
        return torch.complex(numbers.double() - 2, numbers.double() - 1).to(dtype)
    if dtype.is_floating_point:
        return (numbers.double() - 2).to(torch.float32).to(dtype)
    return numbers.to(dtype)


def wide(tensor):
    """In a dtype that torch computes in."""
    if tensor.dtype.is_complex:
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64 if tensor.dtype.is_floating_point else torch.int64)


def expected(name: str, tensors):
    wides = [wide(t) for t in tensors]
    stacked = torch.stack(wides)
    if tensors[0].dtype is torch.bool and name in ("SUM", "PRODUCT"):
        result = stacked.amax(0) if name == "SUM" else stacked.amin(0)
    elif name in ("SUM", "AVG"):
        result = stacked.sum(0)
        if name == "AVG":
            exact = tensors[0].dtype.is_floating_point or tensors[0].dtype.is_complex
            result = result / len(tensors) if exact else torch.div(result, len(tensors), rounding_mode="trunc")
    elif name == "PRODUCT":
        result = stacked.prod(0)
    elif name in ("MIN", "MAX"):
        result = stacked.amin(0) if name == "MIN" else stacked.amax(0)
    else:
        result = wides[0]
        function = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}[name]
        for other in wides[1:]:
            result = function(result, other)
    narrow = result.to(torch.float32) if tensors[0].dtype in SMALL_FLOATS else result
    return narrow.to(tensors[0].dtype)


def bits(tensor):
    return tensor.contiguous().view(torch.uint8).tolist()


def joined(tensors):
    """torch.cat, also of dtypes that it refuses."""
    return torch.cat([t.view(torch.uint8) for t in tensors]).view(tensors[0].dtype)


def same(got, wanted, *what) -> None:
    assert bits(got) == bits(wanted), f"{what}: {got} is not {wanted}"


def close(got, wanted, *what) -> None:
    """Averages of 3 ranks are rounded, once."""
    difference = (wide(got) - wide(wanted)).abs().max().item()
    assert difference <= 0.15, f"{what}: {got} is not {wanted}"


def has(name: str) -> bool:
    return hasattr(dist.ReduceOp, name)


def is_supported(name: str, dtype) -> bool:
    if dtype.is_complex:
        return name in ("SUM", "AVG")
    if dtype is torch.bool:
        return name != "AVG"
    return not (dtype.is_floating_point and name in ("BAND", "BOR", "BXOR"))


def _reductions(rank: int, size: int, folder: str) -> int:
    start(rank, size, folder)
    group = dist.distributed_c10d._get_default_group()
    done = 0
    for name, dtype in itertools.product(filter(has, OPS), ALL):
        op = getattr(dist.ReduceOp, name)
        options = dist.AllreduceOptions()
        options.reduceOp = op
        tensor = values(dtype, rank)
        if not is_supported(name, dtype):
            raised(UnsupportedError, lambda: group.allreduce([tensor], options), name, "not supported")
            continue
        compare = close if name == "AVG" else same
        wanted = expected(name, [values(dtype, r) for r in range(size)])
        group.allreduce([tensor], options).wait()
        compare(tensor, wanted, "all_reduce", name, dtype)
        tensor = values(dtype, rank)
        options = dist.ReduceOptions()
        options.reduceOp, options.rootRank = op, size - 1
        group.reduce([tensor], options).wait()
        if rank == size - 1:
            compare(tensor, wanted, "reduce", name, dtype)
        options = dist.ReduceScatterOptions()
        options.reduceOp = op
        whole = [values(dtype, rank, size * 5).view(size, 5) for rank in range(size)]
        wanted = expected(name, whole)[rank]
        output = torch.empty(5, dtype=dtype)
        group._reduce_scatter_base(output, whole[rank], options).wait()
        compare(output, wanted, "reduce_scatter_tensor", name, dtype)
        output = torch.empty(5, dtype=dtype)
        group.reduce_scatter([output], [[part.clone() for part in whole[rank]]], options).wait()
        compare(output, wanted, "reduce_scatter", name, dtype)
        done += 4
    return done


def test_reductions() -> None:
    print("reductions that were right:", [sum(run(size, _reductions)) for size in (2, 3)])


def _moves(rank: int, size: int, folder: str) -> None:
    start(rank, size, folder)
    for dtype in ALL:
        own = values(dtype, rank)
        each = [values(dtype, r) for r in range(size)]
        tensor = own.clone()
        dist.broadcast(tensor, src=size - 1)
        same(tensor, each[-1], "broadcast", dtype)
        outputs = [torch.empty_like(own) for _ in each]
        dist.all_gather(outputs, own)
        for got, wanted in zip(outputs, each):
            same(got, wanted, "all_gather", dtype)
        flat = torch.empty(size * COUNT, dtype=dtype)
        dist.distributed_c10d._get_default_group()._allgather_base(flat, own).wait()
        same(flat, joined(each), "all_gather_into_tensor", dtype)
        outputs = [torch.empty_like(own) for _ in each] if rank == 1 else None
        dist.gather(own, outputs, dst=1)
        for got, wanted in zip(outputs or [], each):
            same(got, wanted, "gather", dtype)
        output = torch.empty_like(own)
        dist.scatter(output, [t.clone() for t in each] if rank == 0 else None, src=0)
        same(output, own, "scatter", dtype)
        inputs = [values(dtype, 2 * rank + to, 3 + rank + to) for to in range(size)]
        outputs = [torch.empty(3 + rank + r, dtype=dtype) for r in range(size)]
        dist.all_to_all(outputs, inputs)
        for r, got in enumerate(outputs):
            same(got, values(dtype, 2 * r + rank, 3 + rank + r), "all_to_all", dtype)
        sent, output = joined(inputs), torch.empty(sum(3 + rank + r for r in range(size)), dtype=dtype)
        sizes = [3 + rank + r for r in range(size)]
        dist.all_to_all_single(output, sent, sizes, sizes)
        same(output, joined(outputs), "all_to_all_single", dtype)
        request = dist.isend(own, (rank + 1) % size, tag=7)
        output = torch.empty_like(own)
        dist.recv(output, (rank - 1) % size, tag=7)
        request.wait()
        same(output, each[rank - 1], "send, recv", dtype)
    dist.barrier()


def test_moves() -> None:
    run(2, _moves)
    run(3, _moves)


def _shapes(rank: int, size: int, folder: str) -> None:
    """Strides, lazy conjugates, tensors of nothing and of no dimension, views of one storage, a tensor named twice."""
    start(rank, size, folder)
    gaps = torch.arange(12.0).view(3, 4)[:, ::2]
    dist.all_reduce(gaps)
    same(gaps, torch.arange(12.0).view(3, 4)[:, ::2] * size, "every second column")
    tensor = torch.arange(12.0).view(3, 4).t() * (rank + 1)
    dist.all_reduce(tensor)
    same(tensor, torch.arange(12.0).view(3, 4).t() * sum(range(1, size + 1)), "transposed")
    images = torch.arange(24.0).view(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)
    dist.broadcast(images, 0)
    same(images, torch.arange(24.0).view(1, 2, 3, 4), "channels_last")
    group = dist.distributed_c10d._get_default_group()
    lazy = torch.tensor([1 + 2j, 3 - 4j]).conj()
    group.allreduce([lazy]).wait()
    same(lazy.resolve_conj(), torch.tensor([1 - 2j, 3 + 4j]) * size, "conjugate")
    imaginary = torch.tensor([1 + 2j]).conj().imag
    dist.all_reduce(imaginary)
    assert imaginary.item() == -2.0 * size
    scalar = torch.tensor(2)
    dist.all_reduce(scalar)
    assert scalar.item() == 2 * size
    dist.all_reduce(torch.empty(0))
    rows = torch.zeros(size, 4)
    dist.all_gather(list(rows.unbind(0)), torch.full((4,), float(rank)))
    same(rows, torch.arange(size).float().view(-1, 1).expand(size, 4), "rows of a matrix")
    columns = torch.zeros(4, size)
    dist.all_gather(list(columns.unbind(1)), torch.full((4,), float(rank)))
    same(columns, rows.t(), "columns of a matrix")
    shared = torch.zeros(4)
    dist.all_gather([shared] * size, torch.full((4,), 1.0))
    same(shared, torch.ones(4), "a tensor named twice")
    odd = torch.zeros(64, dtype=torch.uint8)
    outputs = [odd[1 + 8 * r :][:8] for r in range(size)]
    dist.all_gather(outputs, torch.full((8,), rank, dtype=torch.uint8))
    assert odd[1 : 1 + 8 * size].tolist() == [r for r in range(size) for _ in range(8)]
    leaf = torch.ones(3, 2, requires_grad=True)
    with torch.no_grad():
        dist.all_reduce(leaf.t())
    assert leaf.sum().item() == 6 * size


def test_shapes() -> None:
    run(2, _shapes)
    run(3, _shapes)


def _premul(rank: int, size: int, folder: str) -> None:
    start(rank, size, folder)
    for dtype in FLOATS + [torch.int32, torch.complex64]:
        tensor = torch.ones(9, dtype=dtype)
        group, options = dist.distributed_c10d._get_default_group(), dist.AllreduceOptions()
        options.reduceOp = dist._make_nccl_premul_sum(2.0 * (rank + 1))
        if premul_factor(options.reduceOp) is None:  # torch without NCCL does not keep the factor
            raised(UnsupportedError, lambda: group.allreduce([tensor], options), "PREMUL_SUM", "factor")
            return
        group.allreduce([tensor], options).wait()
        same(tensor, torch.full((9,), sum(2 * (r + 1) for r in range(size))).to(dtype), "PREMUL_SUM", dtype)
    for _ in range(1100):  # the library has 1,024 of them at once
        group.allreduce([torch.ones(1)], options).wait()


def _sparse(rank: int, size: int, folder: str) -> None:
    """COO tensors, also of no elements and with dense parts, and the gradient of an embedding."""
    start(rank, size, folder)
    for shape in ((4, 5), (4, 5, 2)):
        dense = [torch.zeros(shape) for _ in range(size)]
        for r in range(size):
            dense[r][r], dense[r][0, r] = r + 1, 7
        tensor = (dense[rank] * (rank > 0)).to_sparse(2)
        dist.all_reduce(tensor)
        same(tensor.to_dense(), sum(dense[1:], torch.zeros(shape)), "sparse", shape)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Embedding(9, 3, sparse=True))
    model(torch.tensor([rank, 5])).sum().backward()
    wanted = torch.zeros(9, 3)
    for r in range(size):
        wanted[[r, 5]] += torch.ones(3) / size
    assert torch.allclose(model.module.weight.grad.to_dense(), wanted)
    raised(Error, lambda: dist.all_reduce(torch.eye(2).to_sparse(), op=dist.ReduceOp.MAX), "MAX", "not supported")
    other = torch.ones(2 + rank, 2).to_sparse(1 + rank % 2)
    raised(Error, lambda: dist.all_reduce(other), "rank 0 has [2, 2] of 1 sparse", "rank 1 [3, 2] of 2 sparse")
    other = torch.ones([2] * (2 + rank)).to_sparse()
    raised(Error, lambda: dist.all_reduce(other), "rank 0 has [2, 2] of 2", "rank 1 [2, 2, 2] of 3")
    warnings.simplefilter("ignore")  # which torch does of CSR
    raised(Error, lambda: dist.all_reduce(torch.eye(2).to_sparse_csr()), "not supported")


def test_sparse() -> None:
    run(2, _sparse)
    run(3, _sparse)


def test_premul() -> None:
    run(2, _premul)


def _refused(rank: int, size: int, folder: str) -> None:
    """Before anything is sent."""
    start(rank, size, folder)
    torchs = getattr(dist, "DistBackendError", RuntimeError)
    tensor, outputs = torch.ones(1), [torch.ones(1, dtype=torch.int32)] * size
    for kind in (UnsupportedError, torchs):
        raised(kind, lambda: dist.all_reduce(tensor, op=dist.ReduceOp.BAND), "BAND", "not supported")
        raised(kind, lambda: dist.all_reduce(tensor.to_sparse(), op=dist.ReduceOp.MAX), "MAX", "not supported")
    group = dist.distributed_c10d._get_default_group()
    for kind in (InvalidError, torchs):
        raised(kind, lambda: group.allgather([outputs], [tensor]), "all_gather", "float32", "int32")
    call = group.allgather_into_tensor_coalesced
    raised(InvalidError, lambda: call([torch.ones(size)], [tensor, tensor]), "2 inputs and 1 outputs")
    _own_part_differs(rank, size)
    for tag in (-1, 2**31, 2**32 + 1):  # not that of tag 1
        raised(InvalidError, lambda: dist.isend(tensor, 1 - rank, tag=tag), str(tag))
    raised(InvalidError, lambda: group.recv([tensor], -1, 0), "rank -1")  # as rank - 1 of rank 0: not anybody's


def _own_part_differs(rank: int, size: int) -> None:
    """What a rank gives itself would reach beyond its tensor. The other ranks cannot see that."""
    for group, ranks in ((dist.group.WORLD, size), ([dist.new_group([r]) for r in range(size)][rank], 1)):
        root = rank if ranks == 1 else 0
        lists = [[torch.zeros(1 << 22) for _ in range(ranks)] for _ in range(2)]
        small, words = torch.zeros(3), (f"rank {dist.get_rank(group)}", "3", str(1 << 22))
        calls = [
            lambda: dist.reduce_scatter(small, lists[0], group=group),
            lambda: dist.all_gather(lists[0], small, group=group),
            lambda: dist.all_to_all([small] * ranks, lists[0], group=group),
        ]
        if rank == root:
            calls.append(lambda: dist.scatter(small, lists[0], src=root, group=group))
            calls.append(lambda: dist.gather(small, lists[0], dst=root, group=group))
        for call in calls:
            raised(InvalidError, call, *words)


def test_refused() -> None:
    run(2, _refused)


if __name__ == "__main__":
    run_all([test_reductions, test_moves, test_shapes, test_premul, test_sparse, test_refused])
