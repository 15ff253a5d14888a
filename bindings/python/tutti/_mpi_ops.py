"""mpi4py's operations: the library's for buffers, and functions of two objects."""

import operator
from typing import Any, Callable, Dict, Tuple

from . import _dtypes, _ops
from ._buffers import Buffer
from ._mpi_absent import Names
from ._mpi_buffers import named_type
from ._mpi_types import BYTE, PAIRS
from .errors import InvalidError, UnsupportedError

Function = Callable[[Any, Any], Any]
_OF_OBJECTS_ALONE = -1
_KNOWN = "SUM, PROD, MIN, MAX, MAXLOC, MINLOC, BAND, BOR, BXOR, LAND, LOR and LXOR"


class Op(Names, _ops.Op):
    """op(a, b) of two objects. number is the library's, for buffers."""

    __slots__ = ("of_objects", "is_predefined")

    def __init__(self, name: str, number: int, of_objects: Function, is_predefined: bool = True):
        super().__init__(name, number)
        self.of_objects, self.is_predefined = of_objects, is_predefined

    @classmethod
    def Create(cls, function: Callable[[Any, Any, None], Any], commute: bool = False) -> "Op":
        """An op for objects, which calls function(a, b, None). It is applied in the order of ranks, whatever commute is."""
        return cls("function", _OF_OBJECTS_ALONE, lambda a, b: function(a, b, None), is_predefined=False)

    def Free(self) -> None:
        """Not needed."""

    def __call__(self, a: Any, b: Any) -> Any:
        return self.of_objects(a, b)

    def __reduce__(self) -> str:
        if not self.is_predefined:
            raise TypeError("an operation of Op.Create is of one process: it is neither copied nor pickled")
        return self.name.upper()


def _max_loc(a: Any, b: Any) -> Tuple[Any, Any]:
    (value, place), (other, other_place) = a, b
    if value > other:
        return value, place
    return other, min(place, other_place) if value == other else other_place


def _min_loc(a: Any, b: Any) -> Tuple[Any, Any]:
    (value, place), (other, other_place) = a, b
    if value < other:
        return value, place
    return other, min(place, other_place) if value == other else other_place


SUM, PROD = Op("sum", _ops.SUM.number, operator.add), Op("prod", _ops.PROD.number, operator.mul)
MIN, MAX = Op("min", _ops.MIN.number, min), Op("max", _ops.MAX.number, max)
BAND, BOR = Op("band", _ops.BAND.number, operator.and_), Op("bor", _ops.BOR.number, operator.or_)
BXOR = Op("bxor", _ops.BXOR.number, operator.xor)
LAND = Op("land", _OF_OBJECTS_ALONE, lambda a, b: bool(a) & bool(b))
LOR = Op("lor", _OF_OBJECTS_ALONE, lambda a, b: bool(a) | bool(b))
LXOR = Op("lxor", _OF_OBJECTS_ALONE, lambda a, b: bool(a) ^ bool(b))
MAXLOC, MINLOC = Op("maxloc", _OF_OBJECTS_ALONE, _max_loc), Op("minloc", _OF_OBJECTS_ALONE, _min_loc)

_BY_NUMBER: Dict[int, Op] = {op.number: op for op in (SUM, PROD, MIN, MAX, BAND, BOR, BXOR)}
_OF_BOOLS = {LAND: _ops.BAND, LOR: _ops.BOR, LXOR: _ops.BXOR}
_BITWISE = {op.number for op in (BAND, BOR, BXOR)}


def function_of(call: str, op: Any) -> Tuple[Function, bool]:
    """For objects, and whether it is the caller's own."""
    if isinstance(op, Op):
        return op.of_objects, not op.is_predefined
    if isinstance(op, _ops.Op):
        if op.number not in _BY_NUMBER:
            raise UnsupportedError(f"{call}: {op!r} does not work on objects: use {_KNOWN}, or a function of two objects")
        return _BY_NUMBER[op.number].of_objects, False
    if not callable(op):
        raise InvalidError(f"{call}: {op!r} is no operation: pass one such as MPI.SUM, or a function of two objects")
    return op, True


def is_of_pairs(op: Any) -> bool:
    return op is MAXLOC or op is MINLOC


def library_op(call: str, op: Any, buffer: Any, *written: Any) -> Any:
    """The operation for buffers. written: what the caller wrote for them, with its types."""
    types = [named_type(what) for what in written]
    if any(dtype in PAIRS for dtype in types):
        raise UnsupportedError(f"{call}: {op!r} does not work on pairs: Allreduce and Reduce accept MAXLOC and MINLOC")
    if any(dtype is BYTE for dtype in types) and getattr(op, "number", 0) not in _BITWISE:
        raise InvalidError(f"{call}: {op!r} does not work on MPI.BYTE: name a type of numbers, such as UNSIGNED_CHAR")
    if not isinstance(op, Op) or op.number != _OF_OBJECTS_ALONE:
        return op
    if op in _OF_BOOLS and isinstance(buffer, Buffer) and buffer.dtype == _dtypes.BOOL:
        return _OF_BOOLS[op]
    if is_of_pairs(op):
        cure = "use it in Allreduce and Reduce of [array, MPI.DOUBLE_INT] and other pairs, or on objects"
    elif op in _OF_BOOLS:
        cure = f"it works on bools and objects; for numbers: tutti.op_create('{op.name}', numpy.logical_{op.name[1:]})"
    else:
        cure = "it works on objects; tutti.op_create(name, function) makes one for buffers"
    raise UnsupportedError(f"{call}: {op!r} does not work on these buffers: {cure}")


def fold_pairs(op: Op, dtype: _dtypes.DType, whole: bytearray, ranks: int) -> bytes:
    """whole: the pairs of all ranks, rank after rank."""
    import numpy

    value, place = PAIRS[dtype]
    rows = numpy.frombuffer(whole, numpy.dtype([("value", value), ("place", place)], align=True)).reshape(ranks, -1)
    best = rows[0].copy()
    for row in rows[1:]:
        is_equal = row["value"] == best["value"]
        best["place"][is_equal] = numpy.minimum(row["place"], best["place"])[is_equal]
        is_better = (row["value"] > best["value"]) if op is MAXLOC else (row["value"] < best["value"])
        best[is_better] = row[is_better]
    return bytes(best.tobytes())
