"""mpi4py's types: what the memory of [array, ..., type] holds."""

import re
import struct
from typing import Dict, Tuple, Union

from . import _dtypes
from ._dtypes import UINT8, DType

BYTE = UINT8._replace(name="byte")  # any memory, as bytes without arithmetic

CHAR = SIGNED_CHAR = INT8_T = SINT8_T = INTEGER1 = _dtypes.BY_NAME["int8"]
UNSIGNED_CHAR = UINT8_T = UINT8
SHORT = SIGNED_SHORT = INT16_T = SINT16_T = INTEGER2 = _dtypes.BY_NAME["int16"]
UNSIGNED_SHORT = UINT16_T = _dtypes.BY_NAME["uint16"]
INT = SIGNED_INT = INT32_T = SINT32_T = INTEGER = INTEGER4 = F_INT = _dtypes.BY_NAME["int32"]
UNSIGNED = UNSIGNED_INT = UINT32_T = _dtypes.BY_NAME["uint32"]
LONG = SIGNED_LONG = LONG_LONG = SIGNED_LONG_LONG = INT64_T = SINT64_T = INTEGER8 = _dtypes.BY_NAME["int64"]
AINT = COUNT = OFFSET = LONG
UNSIGNED_LONG = UNSIGNED_LONG_LONG = UINT64_T = _dtypes.BY_NAME["uint64"]
FLOAT = REAL = REAL4 = F_FLOAT = _dtypes.BY_NAME["float32"]
DOUBLE = DOUBLE_PRECISION = REAL8 = F_DOUBLE = _dtypes.BY_NAME["float64"]
COMPLEX = C_COMPLEX = C_FLOAT_COMPLEX = CXX_FLOAT_COMPLEX = COMPLEX8 = F_COMPLEX = F_FLOAT_COMPLEX = _dtypes.COMPLEX64
DOUBLE_COMPLEX = C_DOUBLE_COMPLEX = CXX_DOUBLE_COMPLEX = COMPLEX16 = F_DOUBLE_COMPLEX = _dtypes.COMPLEX128
BOOL = C_BOOL = CXX_BOOL = _dtypes.BOOL


def _pair(name: str, size: int) -> DType:
    """A type that is sent as bytes."""
    return UINT8._replace(name=name, bytes=size, parts=size)


# A value and an int behind it, as structs of C: for MAXLOC and MINLOC.
SHORT_INT, INT_INT, FLOAT_INT = _pair("short_int", 8), _pair("int_int", 8), _pair("float_int", 8)
LONG_INT, DOUBLE_INT = _pair("long_int", 16), _pair("double_int", 16)
TWOINT = INT_INT

PAIRS: Dict[DType, Tuple[str, str]] = {
    SHORT_INT: ("i2", "i4"),
    INT_INT: ("i4", "i4"),
    FLOAT_INT: ("f4", "i4"),
    LONG_INT: ("i8", "i4"),
    DOUBLE_INT: ("f8", "i4"),
}

_OF_LETTER = {"F": _dtypes.COMPLEX64, "D": _dtypes.COMPLEX128, "c": CHAR}


def type_of(x: Union[DType, str]) -> DType:
    """Accepts FLOAT, "f", "f4" and "float32". The number in "f4" counts bytes: "i8" is LONG, as in mpi4py."""
    if isinstance(x, str):
        found = _OF_LETTER.get(x)
        if len(x) == 1 and x in "?bBhHiIlLqQefd":
            found = _dtypes.of_format(x, struct.calcsize(x))
        elif re.fullmatch(r"[bcfiu]\d+", x):
            found = _dtypes.BY_KIND.get((x[0], int(x[1:])))
        if found is not None:
            return found
    return _dtypes.of_name(x)
