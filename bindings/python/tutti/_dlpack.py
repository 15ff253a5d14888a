"""DLPack: where the memory of another library's array is, without that library. One memory, no copies."""

import ctypes
from ctypes import c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, NamedTuple

from . import _dtypes
from .errors import InvalidError

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
_READ_ONLY = 1


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


class Exported(NamedTuple):
    """capsule: keeps the memory; it is not renamed, so that its end gives the memory back."""

    address: int
    elements: int
    dtype: _dtypes.DType
    is_writable: bool
    device_type: int
    capsule: Any


_pointer_of = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))

# DLPack's codes: as NumPy's kinds, and of types that NumPy has not.
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_NAMES = {(4, 16): "bfloat16", (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2"}


def _capsule_of(array: Any) -> Any:
    try:
        return array.__dlpack__(max_version=(1, 0))
    except TypeError:  # older than versions
        return array.__dlpack__()


def _is_packed(t: _Tensor) -> bool:
    expected = 1
    for i in reversed(range(t.ndim if t.strides else 0)):
        if t.shape[i] != 1 and t.strides[i] != expected:
            return False
        expected *= t.shape[i]
    return True


def _dtype_of(t: _Tensor) -> _dtypes.DType:
    found = None
    if t.lanes == 1:
        name = _NAMES.get((t.code, t.bits))
        found = _dtypes.BY_NAME[name] if name else _dtypes.BY_KIND.get((_KINDS.get(t.code, ""), t.bits // 8))
    if found is None:
        raise InvalidError(f"elements of DLPack's type {t.code} with {t.bits} bits and {t.lanes} lanes are none of Tutti's")
    return found


def export(array: Any) -> Exported:
    """The memory of an array with __dlpack__."""
    capsule = _capsule_of(array)
    is_writable = True
    if _is_valid(capsule, b"dltensor_versioned"):
        outer = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        if outer.major != 1:
            raise InvalidError(f"DLPack {outer.major}.{outer.minor} of {type(array).__name__} is not known here: version 1 is")
        tensor, is_writable = outer.tensor, not outer.flags & _READ_ONLY
    else:
        tensor = _Tensor.from_address(_pointer_of(capsule, b"dltensor"))
    count = 1
    for i in range(tensor.ndim):
        count *= tensor.shape[i]
    if count and not _is_packed(tensor):
        raise InvalidError(f"the {type(array).__name__} is not C-contiguous: make a contiguous copy of it first")
    address = (tensor.data or 0) + tensor.byte_offset
    return Exported(address, count, _dtype_of(tensor), is_writable, tensor.device_type, capsule)
