"""The types of elements: what NumPy, torch, DLPack and the buffer protocol call them, and the library's number of each.

A complex number travels as two floats, a bool as a byte.
"""

from typing import Any, Dict, NamedTuple, Optional

from .errors import InvalidError


class DType(NamedTuple):
    """name: NumPy's. code: the library's number. bytes: of one element. parts: how many of the library's elements it is."""

    name: str
    code: int
    bytes: int
    parts: int = 1
    is_bool: bool = False
    is_float: bool = False


_FLOATS = (
    DType("float32", 0, 4, is_float=True),
    DType("float64", 1, 8, is_float=True),
    DType("float16", 2, 2, is_float=True),
    DType("bfloat16", 3, 2, is_float=True),
    DType("float8_e4m3fn", 4, 1, is_float=True),
    DType("float8_e5m2", 5, 1, is_float=True),
)
_INTEGERS = (
    DType("int8", 6, 1),
    DType("uint8", 7, 1),
    DType("int16", 8, 2),
    DType("uint16", 9, 2),
    DType("int32", 10, 4),
    DType("uint32", 11, 4),
    DType("int64", 12, 8),
    DType("uint64", 13, 8),
)
COMPLEX64 = DType("complex64", 0, 8, parts=2, is_float=True)
COMPLEX128 = DType("complex128", 1, 16, parts=2, is_float=True)
BOOL = DType("bool", 7, 1, is_bool=True)
UINT8 = _INTEGERS[1]

BY_CODE: Dict[int, DType] = {t.code: t for t in _FLOATS + _INTEGERS}
BY_NAME: Dict[str, DType] = {t.name: t for t in (*_FLOATS, *_INTEGERS, COMPLEX64, COMPLEX128, BOOL)}
# The names of tutti.h, in lower case.
_SHORT = {
    "f32": "float32",
    "f64": "float64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8_e4m3": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
}
_SHORT.update({f"{kind}{bits}": f"{word}{bits}" for kind, word in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)})
BY_NAME.update({short: BY_NAME[name] for short, name in _SHORT.items()})

# (kind, bytes), as NumPy's dtype.kind has it.
BY_KIND = {("f", t.bytes): t for t in _FLOATS[:3]}
BY_KIND.update({("i" if t.name.startswith("i") else "u", t.bytes): t for t in _INTEGERS})
BY_KIND.update({("c", 8): COMPLEX64, ("c", 16): COMPLEX128, ("b", 1): BOOL})

_KIND_OF_FORMAT = {
    **dict.fromkeys("bhilqn", "i"),
    **dict.fromkeys("BHILQNPc", "u"),
    **dict.fromkeys("efd", "f"),
    "?": "b",
}


def is_swapped(text: str, itemsize: int) -> bool:
    """Whether elements of a format of the buffer protocol are in the byte order of other machines."""
    return text[:1] in (">", "!") and itemsize > 1


def of_format(text: Optional[str], itemsize: int) -> Optional[DType]:
    """Of the buffer protocol: struct's letters. The size is the buffer's: ctypes says "<l" of longs of 8 bytes."""
    text = text or "B"
    if is_swapped(text, itemsize):
        return None
    letters = text.lstrip("@=<>!")
    if letters in ("Zf", "Zd"):
        return BY_KIND.get(("c", itemsize))
    return BY_KIND.get((_KIND_OF_FORMAT.get(letters, ""), itemsize))


def of_name(dtype: Any) -> DType:
    """Of what a caller wrote: "f32", "bfloat16", numpy.float32, numpy.dtype, ml_dtypes.bfloat16, torch.float32."""
    if isinstance(dtype, DType):
        return dtype
    if getattr(dtype, "isnative", True) is False:
        raise InvalidError(f"dtype {dtype} is in the byte order of other machines")
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    found = BY_NAME.get(str(name).replace("torch.", "", 1))
    if found is None:
        raise InvalidError(f"dtype {dtype!r} is none of Tutti's: {', '.join(sorted(_SHORT))}, complex64, complex128 or bool")
    return found


def numpy_dtype(dtype: DType) -> Any:
    """NumPy's, for views of memory. bfloat16 and 8-bit floats are ml_dtypes', or unsigned integers where it is missing."""
    import numpy

    try:
        return numpy.dtype(dtype.name)
    except TypeError:
        pass
    try:
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, dtype.name))
    except ImportError:
        return numpy.dtype(f"uint{8 * dtype.bytes}")
