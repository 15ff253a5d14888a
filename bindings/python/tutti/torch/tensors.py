"""What tensors are to the library: dtypes, operations, contiguous memory, and lists of tensors as one buffer."""

import ctypes

import torch

from .._library import lib
from ..errors import InvalidError, UnsupportedError, check

F32, F64, F16, BF16, F8_E4M3, F8_E5M2, I8, U8, I16, U16, I32, U32, I64, U64 = range(14)
SUM, PROD, MIN, MAX, AVG, BAND, BOR, BXOR = range(8)
PREMUL_SUM = 8  # torch's number; the library makes an operation of each factor
DTYPE_BYTES = (4, 8, 2, 2, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8)
OP_NAMES = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
_OPS = (SUM, AVG, PROD, MIN, MAX, BAND, BOR, BXOR)  # in the order of torch's numbers, which are the hashes of its ops

_FLOATS = {"float32": F32, "float64": F64, "float16": F16, "bfloat16": BF16}
_FLOATS |= {"float8_e4m3fn": F8_E4M3, "float8_e5m2": F8_E5M2}
_INTEGERS = {"int8": I8, "uint8": U8, "int16": I16, "uint16": U16, "int32": I32, "uint32": U32, "int64": I64, "uint64": U64}
_COMPLEX = {"complex64": F32, "complex128": F64}
# bool is a byte of 0 or 1: a sum is "any", a product "all".
_BOOL_OPS = {SUM: MAX, PROD: MIN, MIN: MIN, MAX: MAX, BAND: BAND, BOR: BOR, BXOR: BXOR}


def _of_torch(names: dict) -> dict:
    """By torch's dtypes, without those that this torch does not have."""
    return {getattr(torch, name): dtype for name, dtype in names.items() if hasattr(torch, name)}


# torch dtype: (dtype, elements of it in one of torch's), for calls that move elements, and by operation for those that
# reduce: (dtype, elements, op).
_MOVED = {t: (d, 1) for t, d in _of_torch(_FLOATS | _INTEGERS).items()}
_MOVED |= {t: (d, 2) for t, d in _of_torch(_COMPLEX).items()}


def _reductions(op: int) -> dict:
    table = {}
    if op in (SUM, AVG, PROD, MIN, MAX):
        table |= {t: (d, 1, op) for t, d in _of_torch(_FLOATS).items()}
    if op in (SUM, AVG):
        table |= {t: (d, 2, op) for t, d in _of_torch(_COMPLEX).items()}
    if op in _BOOL_OPS:
        table[torch.bool] = (U8, 1, _BOOL_OPS[op])
    return table | {t: (d, 1, op) for t, d in _of_torch(_INTEGERS).items()}


_REDUCED = tuple(_reductions(op) for op in _OPS)


def moved(tensor) -> tuple:
    """(dtype, elements of it in one of tensor's). What the library does not know travels as bytes."""
    return _MOVED.get(tensor.dtype) or (U8, tensor.element_size())


def reduced(tensor, op) -> tuple:
    """(dtype, elements, op) of a reduction that is not PREMUL_SUM."""
    try:
        return _REDUCED[hash(op)][tensor.dtype]
    except (KeyError, IndexError):
        name = OP_NAMES[hash(op)] if hash(op) < len(OP_NAMES) else op
        raise UnsupportedError(f"tutti: {name} of {tensor.dtype} is not supported") from None


def premul_factor(op):
    """Of a PREMUL_SUM; None where torch has not kept it."""
    return (op.__getstate__() or (None, None))[1]


class ScaledSum:
    """PREMUL_SUM of tensors like tensor, by the factor of torch's op: an operation of the library's while this lives."""

    def __init__(self, tensor, op):
        if tensor.dtype not in _REDUCED[SUM] or tensor.dtype is torch.bool:
            raise UnsupportedError(f"tutti: PREMUL_SUM of {tensor.dtype} is not supported")
        self.dtype, self.elements = moved(tensor)
        real = torch.empty(0, dtype=tensor.dtype).real.dtype if tensor.is_complex() else tensor.dtype
        factor = premul_factor(op)
        if factor is None:
            raise UnsupportedError("tutti: PREMUL_SUM has no factor: only a torch that was built with NCCL keeps it")
        factor = torch.tensor([float(factor)], dtype=torch.float64).to(real)
        number = ctypes.c_int()
        check(lib.tutti_op_create_scaled(ctypes.byref(number), factor.data_ptr(), self.dtype))
        self.number = number.value

    def __del__(self):
        if hasattr(self, "number"):
            lib.tutti_op_destroy(self.number)


def is_plain(tensor) -> bool:
    """Its memory is its elements, one after the other. False for strides, and for lazy conjugates and negatives."""
    if tensor.layout is not torch.strided:
        raise UnsupportedError(f"tutti: {tensor.layout} tensors are not supported; make them dense first")
    return tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj())


def plain_copy(tensor):
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor.detach())


def plain_like(tensor):
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _reach(tensors, elements: int, element_bytes: int):
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
            raise InvalidError(f"tutti: {call} of {tensors[0].dtype} and {tensor.dtype}: one dtype is needed")


class Blocks:
    """A list of plain tensors, one for each rank, as one buffer: address, counts and offsets in elements of dtype.

    Where they lie too oddly for that, a flat tensor stands for them; flat and its views are then set."""

    def __init__(self, tensors, dtype: int, elements: int, is_output: bool):
        self.tensors, self.flat, self.views = tensors, None, ()
        self.counts = (ctypes.c_size_t * len(tensors))(*[t.numel() * elements for t in tensors])
        reached = _reach(tensors, elements, DTYPE_BYTES[dtype])
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
