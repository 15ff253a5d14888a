"""Operations of reductions: the library's, and the caller's own."""

import ctypes
import struct
import threading
from typing import Any, Callable, List, Optional, Tuple

from . import _dtypes
from ._checks import text
from ._library import REDUCE, lib
from .errors import InvalidError, check


class _Callback(threading.local):
    """is_running: this thread is in a function of the caller's, perhaps under a lock of the library's. What ends an object
    there leaves its memory to a later call."""

    is_running = False


callback = _Callback()


class Op:
    """An operation: SUM, PROD, MIN, MAX, AVG, BAND, BOR, BXOR, or one of op_create and op_create_scaled.

    One of the caller's own lives until destroy(), the end of its with block, or its last reference.
    """

    __slots__ = ("name", "number", "dtype", "_failures", "_function", "_is_own", "__weakref__")

    def __init__(
        self, name: str, number: int, dtype: Optional[_dtypes.DType] = None, function: Any = None, is_own: bool = False
    ):
        self.name, self.number, self.dtype = name, number, dtype
        self._failures: List[BaseException] = []  # what its function raised
        self._function, self._is_own = function, is_own

    @property
    def watch(self) -> "Watch":
        """For a call that begins now."""
        return () if self._function is None else ((self, len(self._failures)),)

    def destroy(self) -> None:
        """Calls in flight with it end as if it were still there."""
        if self._is_own:
            self._is_own = False
            lib.tutti_op_destroy(self.number)
            self.number = -1

    def __enter__(self) -> "Op":
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def __del__(self) -> None:
        # In a callback the library's locks are held: the operation stays, one of 1,024.
        if getattr(self, "_is_own", False) and not callback.is_running:
            self.destroy()

    def __reduce__(self) -> str:
        name = self.name.upper()
        if globals().get(name) is not self:
            raise TypeError("an operation of op_create is of one process: it is neither copied nor pickled")
        return name  # of this module: a copy of SUM is SUM

    def __repr__(self) -> str:
        return f"<tutti.Op {self.name}>"


# Operations of the caller's that a call uses, and how often the function of each had raised when the call began.
Watch = Tuple[Tuple[Op, int], ...]

SUM, PROD, MIN, MAX, AVG = (Op(name, i) for i, name in enumerate(("sum", "prod", "min", "max", "avg")))
BAND, BOR, BXOR = (Op(name, i) for i, name in enumerate(("band", "bor", "bxor"), 5))

# A bool is a byte of 0 or 1. Its sum and product are those of NumPy: or, and.
_OF_BOOLS = {0: MAX.number, 1: MIN.number, 2: MIN.number, 3: MAX.number, 5: MIN.number, 6: MAX.number, 7: BXOR.number}


def numbers_of(call: str, op: Op, dtype: _dtypes.DType) -> Tuple[int, int, int]:
    """For the library: the operation, the dtype, and how many elements of it one of the caller's is."""
    if not isinstance(op, Op):
        raise InvalidError(f"{call}: {op!r} is no operation: pass tutti.SUM, or one of tutti.op_create")
    number = op.number
    if op._function is not None and op.dtype is not None:
        if op.dtype != dtype:
            raise InvalidError(f"{call}: operation {op.name} is for {op.dtype.name}, and the elements are {dtype.name}")
        return number, _dtypes.BY_KIND["u", dtype.bytes].code, 1
    if dtype.is_bool and op._function is None:
        if number not in _OF_BOOLS:
            raise InvalidError(f"{call}: {op.name} does not work on bools: convert them to numbers first")
        return _OF_BOOLS[number], dtype.code, 1
    if dtype.parts > 1 and number not in (SUM.number, AVG.number) and (op._function or op.dtype is None):
        raise InvalidError(
            f"{call}: {op.name} does not work on complex numbers, which travel as two floats: sum, avg and scaled sums do"
        )
    return number, dtype.code, dtype.parts


def _view(address: int, count: int, dtype: _dtypes.DType) -> Any:
    import numpy

    raw: Any = (ctypes.c_char * (count * dtype.bytes)).from_address(address)
    return numpy.frombuffer(raw, _dtypes.numpy_dtype(dtype))


_LOSSY = {"i": "fc", "u": "fc", "f": "c"}  # kinds of results whose elements would lose their fractions or imaginary parts


def _store(name: str, inout: Any, result: Any) -> None:
    import numpy

    result = numpy.asarray(result)
    if result.dtype.kind in _LOSSY.get(inout.dtype.kind, ""):
        raise TypeError(f"{name}: the function returned {result.dtype} for elements of {inout.dtype}: convert it there")
    inout[...] = result


def op_create(name: str, function: Callable[[Any, Any], Any], dtype: Any = None) -> Op:
    """An operation of the caller's, on host memory: inout = inout (op) in, element by element, associative and commutative.

    function(inout, in_) gets two NumPy arrays of equal length, of one dimension: it writes inout, or returns the result.
    They are the library's memory: no reference to them may stay. It runs on any thread, under locks of the library: it
    may call nothing of Tutti. If it raises, the call raises that here, and the communicator is aborted.
    So it is where it returns floats for integers, or complex numbers for floats.
    name (1 to 63 bytes) is compared between ranks: different names in one call are a MismatchError.
    dtype: needed for complex64 alone, and then the operation is for that.
    """
    if not callable(function):
        raise TypeError(f"op_create: function is of type {type(function).__name__}: it must be one of two arrays")
    kind = None if dtype is None else _dtypes.of_name(dtype)
    if kind is not None and ("u", kind.bytes) not in _dtypes.BY_KIND:
        raise InvalidError(f"op_create: elements of {kind.name} may be cut in two between calls of a function")
    failures: List[BaseException] = []

    def reduce(inout: int, in_: int, count: int, code: int, _: Any) -> None:
        callback.is_running = True
        try:
            seen = kind or _dtypes.BY_CODE[code]
            written = _view(inout, count, seen)
            result = function(written, _view(in_, count, seen))
            if result is not None and result is not written:
                _store(name, written, result)
        except BaseException as error:  # it must not go on into the library
            failures.append(error)
        finally:
            callback.is_running = False

    native = REDUCE(reduce)
    number = ctypes.c_int()
    check(lib.tutti_op_create(ctypes.byref(number), text("op_create: name", name), native, None))
    op = Op(name, number.value, kind, native, is_own=True)
    op._failures = failures  # the function has these, not op: a cycle would keep op beyond its last reference
    return op


_STRUCT = {0: "f", 1: "d", 2: "e", 6: "b", 7: "B", 8: "h", 9: "H", 10: "i", 11: "I", 12: "q", 13: "Q"}


def _bytes_of(scalar: Any, dtype: _dtypes.DType) -> bytes:
    letter = _STRUCT.get(dtype.code)
    if letter:
        try:
            number = scalar if dtype.is_float else int(scalar)
            if dtype.is_float or number == scalar:
                return struct.pack(letter, number)
        except (struct.error, ValueError, OverflowError):
            pass
        raise InvalidError(f"op_create_scaled: {scalar!r} is no {dtype.name}")
    if dtype.name == "bfloat16":  # the upper half of a float32, rounded to nearest even
        (bits,) = struct.unpack("I", struct.pack("f", scalar))
        return struct.pack("H", min((bits + 0x7FFF + (bits >> 16 & 1)) >> 16, 0xFFFF) if scalar == scalar else 0x7FC0)
    array_type = _dtypes.numpy_dtype(dtype)
    if array_type.kind == "u":
        raise InvalidError(f"op_create_scaled: a scalar of {dtype.name} needs the package ml_dtypes")
    return bytes(array_type.type(scalar).tobytes())


def op_create_scaled(scalar: float, dtype: Any = "f32") -> Op:
    """The sum of scalar * x, each rank with its own scalar, for elements of dtype: NCCL's PreMulSum."""
    kind = _dtypes.of_name(dtype)
    if kind.parts > 1 or kind.is_bool:
        raise InvalidError(f"op_create_scaled: dtype {kind.name} is none of the library's: use that of its parts")
    number = ctypes.c_int()
    raw = ctypes.create_string_buffer(_bytes_of(scalar, kind), kind.bytes)
    check(lib.tutti_op_create_scaled(ctypes.byref(number), raw, kind.code))
    return Op(f"{scalar:g} * sum", number.value, kind, is_own=True)
