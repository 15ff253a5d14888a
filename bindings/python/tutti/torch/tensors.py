"""What tensors are to the library: dtypes, operations, contiguous memory, and lists of tensors as one buffer."""

import contextlib
import ctypes

import torch

from .. import _ops
from .._dtypes import BY_CODE, BY_NAME, UINT8, DType
from .._library import OK, lib
from ..errors import InvalidError
from .failures import failure, refused, unsupported

PREMUL_SUM = 8  # torch's number; the library makes an operation of each factor
# In the order of torch's numbers, which are the hashes of its ops.
OP_NAMES = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
_OPS = (_ops.SUM, _ops.AVG, _ops.PROD, _ops.MIN, _ops.MAX, _ops.BAND, _ops.BOR, _ops.BXOR)

# By torch's dtype, of those that this torch has: (dtype, elements of it in one of torch's), for calls that move elements,
# and by operation for those that reduce: (dtype, elements, op).
_DTYPES = {getattr(torch, t.name): t for t in BY_NAME.values() if hasattr(torch, t.name)}
_DTYPES[torch.complex32] = DType("complex32", BY_NAME["float16"].code, 4, parts=2, is_float=True)  # NumPy has none
_MOVED = {dtype: (t.code, t.parts) for dtype, t in _DTYPES.items()}


def _reductions(op: _ops.Op) -> dict:
    table = {}
    for dtype, t in _DTYPES.items():
        if not (t.is_float and op in (_ops.BAND, _ops.BOR, _ops.BXOR)):
            with contextlib.suppress(InvalidError):
                number, code, parts = _ops.numbers_of("", op, t)
                table[dtype] = code, parts, number
    return table


_REDUCED = tuple(map(_reductions, _OPS))


def moved(tensor) -> tuple:
    """(dtype, elements of it in one of tensor's). What the library does not know travels as bytes."""
    return _MOVED.get(tensor.dtype) or (UINT8.code, tensor.element_size())


def reduced(tensor, op) -> tuple:
    """(dtype, elements, op) of a reduction that is not PREMUL_SUM."""
    try:
        return _REDUCED[hash(op)][tensor.dtype]
    except (KeyError, IndexError):
        name = OP_NAMES[hash(op)] if hash(op) < len(OP_NAMES) else op
        raise unsupported(f"tutti: {name} of {tensor.dtype} is not supported") from None


def premul_factor(op):
    """Of a PREMUL_SUM; None where torch has not kept it."""
    return (op.__getstate__() or (None, None))[1]


class ScaledSum:
    """PREMUL_SUM of tensors like tensor, by the factor of torch's op: an operation of the library's while this lives."""

    def __init__(self, tensor, op):
        if tensor.dtype not in _MOVED or tensor.dtype is torch.bool:
            raise unsupported(f"tutti: PREMUL_SUM of {tensor.dtype} is not supported")
        self.dtype, self.elements = moved(tensor)
        real = torch.empty(0, dtype=tensor.dtype).real.dtype if tensor.is_complex() else tensor.dtype
        factor = premul_factor(op)
        if factor is None:
            raise unsupported("tutti: PREMUL_SUM has no factor: only a torch that was built with NCCL keeps it")
        factor = torch.tensor([float(factor)], dtype=torch.float64).to(real)
        number = ctypes.c_int()
        status = lib.tutti_op_create_scaled(ctypes.byref(number), factor.data_ptr(), self.dtype)
        if status != OK:
            raise failure(status, None)
        self.number = number.value

    def __del__(self):
        if hasattr(self, "number"):
            lib.tutti_op_destroy(self.number)


def is_plain(tensor) -> bool:
    """Its memory is its elements, one after the other. False for strides, and for lazy conjugates and negatives."""
    if tensor.layout is not torch.strided:
        raise unsupported(f"tutti: {tensor.layout} tensors are not supported; make them dense first")
    return tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj())


def plain_copy(tensor):
    return plain_like(tensor).copy_(tensor.detach())


def plain_like(tensor):
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _reach(tensors, element_bytes: int):
    """(address, offsets) from which all of tensors are reached, or None: odd distances, shared bytes, several devices'."""
    filled = [t for t in tensors if t.numel()]
    if not filled:
        return None, (ctypes.c_size_t * len(tensors))()
    places = sorted((t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in filled)
    if any(end > begin for (_, end), (begin, _) in zip(places, places[1:])):
        return None
    first = places[0][0]
    if not filled[0].is_cpu and len({storage_address(t) for t in filled}) > 1:
        return None
    distances = [t.data_ptr() - first if t.numel() else 0 for t in tensors]
    if any(d % element_bytes for d in distances):
        return None
    return first, (ctypes.c_size_t * len(tensors))(*[d // element_bytes for d in distances])


def storage_address(tensor) -> int:
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    return storage.data_ptr()


def same_dtype(call: str, *tensors) -> None:
    for tensor in tensors[1:]:
        if tensor.dtype is not tensors[0].dtype:
            raise refused(f"tutti: {call} of {tensors[0].dtype} and {tensor.dtype}: one dtype is needed")


class Blocks:
    """A list of plain tensors, one for each rank, as one buffer: address, counts and offsets in elements of dtype.

    Where they lie too oddly for that, a flat tensor stands for them; flat and its views are then set."""

    def __init__(self, tensors, dtype: int, elements: int, is_output: bool):
        self.tensors, self.flat, self.views = tensors, None, ()
        self.counts = (ctypes.c_size_t * len(tensors))(*[t.numel() * elements for t in tensors])
        reached = _reach(tensors, BY_CODE[dtype].bytes)
        if reached is None:
            flat = torch.empty(sum(t.numel() for t in tensors), dtype=tensors[0].dtype, device=tensors[0].device)
            self.flat, self.views = flat, flat.split([t.numel() for t in tensors])
            if not is_output:
                for view, tensor in zip(self.views, tensors):
                    view.copy_(tensor.detach().reshape(-1))
            self.address, self.offsets = flat.data_ptr(), None
        else:
            self.address, self.offsets = reached

    def copies(self) -> list:
        """(tensor, its view of flat), to be copied when an output has come."""
        return [(t, v.view(t.shape)) for t, v in zip(self.tensors, self.views)]
