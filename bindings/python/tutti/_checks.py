"""What a call checks of its buffers and counts before anything is sent: the library knows no buffer's length."""

from __future__ import annotations

from ctypes import c_size_t
from itertools import accumulate
from operator import index
from typing import Any, Optional, Sequence

from ._buffers import Buffer, buffer_of
from ._types import Options
from .errors import InvalidError


def plain(call: str, what: str, memory: Any, options: Options) -> Buffer:
    try:
        return buffer_of(memory, options.get("dtype"))
    except InvalidError as error:
        raise InvalidError(f"{call}: {what}: {error}") from None


def written(call: str, what: str, memory: Any, options: Options) -> Buffer:
    found = plain(call, what, memory, options)
    if not found.is_writable:
        raise InvalidError(f"{call}: {what} is read-only, and the result is written there")
    return found


def same_dtype(call: str, a: Buffer, b: Buffer) -> None:
    if a.dtype is not b.dtype and a.dtype != b.dtype:
        raise InvalidError(f"{call}: send has elements of {a.dtype.name} and recv of {b.dtype.name}: they must be equal")


def needs(call: str, what: str, have: int, needed: int, why: str) -> None:
    if have != needed:
        raise InvalidError(f"{call}: {what} has {have} elements and needs {needed}: {why}")


def fits(call: str, what: str, number: int) -> int:
    """The number, of which ctypes would take the lower 32 bits."""
    number = index(number)
    if not -(2**31) <= number < 2**31:
        raise InvalidError(f"{call}: {what} is {number}: it must fit in 32 bits")
    return number


def text(what: str, value: Optional[str]) -> Optional[bytes]:
    if value is None:
        return None
    if not isinstance(value, str):  # and the value may be a secret
        raise TypeError(f"{what} is of type {type(value).__name__}: it must be a str")
    if "\0" in value:
        raise InvalidError(f"{what} has a NUL character, which ends texts of C")
    return value.encode()


def block_count(call: str, what: str, whole: Buffer, size: int) -> int:
    """The elements of each of its size blocks."""
    if whole.count % size:
        raise InvalidError(f"{call}: {what} has {whole.count} elements, which are no {size} equal blocks")
    return whole.count // size


def block_at(buffer: Buffer, first: int) -> Optional[int]:
    return None if buffer.address is None else buffer.address + first * buffer.dtype.bytes


def own_block(call: str, what: str, memory: Any, whole: Buffer, options: Options) -> Optional[Buffer]:
    """Of this rank. what: "send" or "recv". None: it lies within whole, the other buffer."""
    if memory is None:
        return None
    if what == "recv":
        block = written(call, what, memory, options)
        same_dtype(call, whole, block)
    else:
        block = plain(call, what, memory, options)
        same_dtype(call, block, whole)
    return block


class Table:
    """counts and offsets of a v-variant, in elements: as arrays for the library, and the end of the last block."""

    def __init__(
        self, call: str, size: int, counts: Sequence[int], offsets: Optional[Sequence[int]], parts: int, names: str = ""
    ):
        self.call = call
        self.counts = list(map(index, counts))
        listed = None if offsets is None else list(map(index, offsets))
        for what, numbers in ((names + "counts", self.counts), (names + "offsets", listed)):
            if numbers is not None and len(numbers) != size:
                raise InvalidError(f"{call}: {what} has {len(numbers)} numbers and needs {size}, one for each rank")
            if numbers is not None and any(n < 0 or n >= 2**62 for n in numbers):
                raise InvalidError(f"{call}: {what} has a negative number, or one beyond all memory: {numbers}")
        self.starts = listed or [0, *accumulate(self.counts[:-1])]
        self.end = max((start + n for start, n in zip(self.starts, self.counts) if n), default=0)
        array = c_size_t * size
        self.arrays = tuple(numbers and array(*(n * parts for n in numbers)) for numbers in (self.counts, listed))

    def check(self, what: str, have: int) -> None:
        if have < self.end:
            raise InvalidError(f"{self.call}: {what} has {have} elements and needs {self.end}: its last block ends there")

    def block(self, buffer: Buffer, rank: int) -> Optional[int]:
        """The address of a rank's block."""
        return block_at(buffer, self.starts[rank])
