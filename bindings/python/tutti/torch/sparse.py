"""all_reduce of sparse tensors (COO), as of gradients of embeddings: every rank gets all indices and values.

It takes four calls and is over when it returns."""

import torch

from .failures import refused, unsupported
from .tensors import OP_NAMES
from .work import Work

_UNCHECKED = {} if torch.__version__.startswith("1.") else {"check_invariants": False}  # else torch warns of it


def _gather(group, tensor, shapes) -> list:
    outputs = [torch.empty(shape, dtype=tensor.dtype) for shape in shapes]
    group.allgather([outputs], [tensor]).wait()
    return outputs


def _text(shape: list) -> str:
    sparse, dense, *sizes = shape
    return f"{sizes} of {sparse} sparse and {dense} dense dimensions"


def _sum(group, tensor):
    own = tensor.detach().coalesce()
    shape = torch.tensor([own.sparse_dim(), own.dense_dim(), *own.shape], dtype=torch.int64)
    sizes = _gather(group, torch.tensor([own._nnz(), shape.numel()]), [[2]] * group.size())
    shapes = [other.tolist() for other in _gather(group, shape, [[int(numbers)] for _, numbers in sizes])]
    for rank, other in enumerate(shapes):
        if other != shapes[0]:
            raise refused(
                f"tutti: all_reduce of sparse tensors: rank 0 has {_text(shapes[0])}, and rank {rank} {_text(other)}"
            )
    counts = [int(count) for count, _ in sizes]
    indices = _gather(group, own.indices(), [[own.sparse_dim(), count] for count in counts])
    values = _gather(group, own.values(), [[count, *own.values().shape[1:]] for count in counts])
    total = torch.sparse_coo_tensor(torch.cat(indices, 1), torch.cat(values), own.shape, **_UNCHECKED)
    return total.coalesce()


def all_reduce_sparse(group, tensors, op) -> Work:
    name = OP_NAMES[hash(op)]
    if name not in ("SUM", "AVG"):
        raise unsupported(f"tutti: {name} of sparse tensors is not supported")
    with torch.no_grad():
        for tensor in tensors:
            if not tensor.is_cpu:
                raise unsupported(f"tutti: sparse tensors on {tensor.device} are not supported")
            total = _sum(group, tensor)
            tensor.copy_(total / group.size() if name == "AVG" else total)
    work = Work(tensors)
    work.lane, work.is_over = group.lane(), True
    work.lane.forget(work)
    return work
