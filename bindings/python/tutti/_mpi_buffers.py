"""The buffer arguments of mpi4py's calls: [array, counts, displacements, type] or a part of it.

The type describes the elements in the order in which they lie in memory, which may be C's or Fortran's.
"""

import sys
from operator import index
from typing import Any, List, NamedTuple, Optional, Tuple

from ._buffers import Buffer, buffer_of, bytes_of
from ._checks import block_at, block_count
from ._dtypes import UINT8, DType
from ._mpi_types import BYTE, INT, INT_INT, type_of
from .errors import InvalidError


class _InPlace:
    def __repr__(self) -> str:
        return "IN_PLACE"


IN_PLACE = _InPlace()


class Vector(NamedTuple):
    """A block for each rank. buffer is None for IN_PLACE and None; displs is None where the blocks follow one another."""

    buffer: Optional[Buffer]
    counts: List[int]
    displs: Optional[List[int]] = None


def _is_number(x: Any) -> bool:
    """True for NumPy's integers, too, but not for its arrays, which also have __index__."""
    return hasattr(x, "__index__") and not hasattr(x, "__len__")


def numbers_of(x: Any) -> List[int]:
    return list(map(index, x))


def named_type(what: Any) -> Optional[DType]:
    """The type that is written behind a buffer."""
    is_named = isinstance(what, (list, tuple)) and len(what) > 1 and isinstance(what[-1], (DType, str))
    return type_of(what[-1]) if is_named else None


def _in_c_order(memory: Any) -> Any:
    """An array in Fortran's order as the array in C's order that has the same memory."""
    if isinstance(memory, memoryview):
        is_fortran = memory.f_contiguous and not memory.c_contiguous
        return sys.modules["numpy"].asarray(memory).T if is_fortran and "numpy" in sys.modules else memory
    if hasattr(memory, "data_ptr") and hasattr(memory, "permute"):
        if memory.dim() > 1 and not memory.is_contiguous():
            turned = memory.permute(*reversed(range(memory.dim())))
            return turned if turned.is_contiguous() else memory
        return memory
    flags = getattr(memory, "flags", None)  # of NumPy, CuPy
    is_fortran = getattr(flags, "f_contiguous", False) and not getattr(flags, "c_contiguous", True)
    return memory.T if is_fortran else memory


def _stands_for(dtype: DType, have: DType) -> bool:
    """Whether memory of have's elements may be read as dtype: same size, bytes, or the parts of complex numbers or pairs."""
    if dtype is BYTE or have.bytes in (1, dtype.bytes):
        return True
    is_part = have.parts == 2 and (dtype.code, 2 * dtype.bytes) == (have.code, have.bytes)
    return is_part or (dtype == INT_INT and have == INT)


def _read(memory: Any, dtype: Optional[DType]) -> Buffer:
    memory = _in_c_order(memory)
    try:
        buffer = buffer_of(memory)
        have = buffer.dtype
    except InvalidError as error:
        buffer, size = bytes_of(memory)
        if dtype is None:
            raise InvalidError(f"{error}; pass [array, MPI.BYTE] to send its bytes") from None
        # Of these elements only the size is known. Strings may be read as characters.
        have = UINT8._replace(name=f"records of {size} bytes", bytes=dtype.bytes if dtype.bytes == 1 else size)
    if dtype is None or have == dtype:
        return buffer
    if not _stands_for(dtype, have):
        raise InvalidError(
            f"elements of {have.name} cannot be read as {dtype.name}: they have {have.bytes} and {dtype.bytes} bytes. "
            "Pass MPI.BYTE to move any memory as bytes"
        )
    whole, rest = divmod(buffer.count * buffer.dtype.bytes, dtype.bytes)
    if rest:
        raise InvalidError(
            f"{buffer.count * buffer.dtype.bytes} bytes are no whole number of elements of {dtype.name}, "
            f"which have {dtype.bytes} bytes"
        )
    buffer.count, buffer.dtype = whole, UINT8 if dtype is BYTE else dtype
    return buffer


def _parts(what: Any) -> Tuple[Buffer, Any, Any]:
    """The buffer, and the counts and the displacements that are written behind it, or None."""
    if not isinstance(what, (list, tuple)):
        return _read(what, None), None, None
    dtype = named_type(what)
    memory, *rest = what or (None,)
    if dtype is not None:
        rest.pop()
    buffer = _read(memory, dtype)
    if len(rest) > 2:
        raise InvalidError(f"a buffer of {len(what)} parts: it is [array, counts, displacements, type] at most")
    return (buffer, *rest, *(2 - len(rest)) * (None,))


def buffer_at(what: Any, blocks: int = 1) -> Optional[Buffer]:
    """The buffer that an argument describes; None for IN_PLACE and None. A count is multiplied by blocks."""
    if what is None or what is IN_PLACE:
        return None
    buffer, count, displ = _parts(what)
    if isinstance(count, tuple) and len(count) == 2 and displ is None:
        count, displ = count
    if count is None and displ is None:
        return buffer
    if not (count is None or _is_number(count)) or not (displ is None or _is_number(displ)):
        raise InvalidError(f"counts of {count} and displacements of {displ}: this buffer has one count and one displacement")
    first = 0 if displ is None else index(displ)
    needed = buffer.count - first if count is None else index(count) * blocks
    if min(first, needed) < 0 or first + needed > buffer.count:
        raise InvalidError(
            f"the buffer has {buffer.count} elements, but {blocks} times {count} are needed from element {first} on"
        )
    buffer.address, buffer.count = block_at(buffer, first), needed
    return buffer


def vector_of(what: Any, size: int) -> Vector:
    """A block for each of size ranks. A single count holds for each block; without counts all blocks are equal."""
    if what is None or what is IN_PLACE:
        return Vector(None, [0] * size)
    buffer, counts, displs = _parts(what)
    if isinstance(counts, (list, tuple)) and len(counts) == 2 and displs is None and not _is_number(counts[0]):
        counts, displs = counts
    if counts is None:
        counts = block_count("without counts", "the buffer", buffer, size)
    each = [index(counts)] * size if _is_number(counts) else numbers_of(counts)
    return Vector(buffer, each, None if displs is None else numbers_of(displs))


def size_in_bytes(buffer: Optional[Buffer]) -> int:
    return buffer.count * buffer.dtype.bytes if buffer else 0
