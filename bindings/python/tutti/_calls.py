"""The collectives and messages of a communicator: what is checked here, and how they reach the library.

The library knows no buffer's length, so each call compares its buffers' elements with what it needs before anything is
sent. After an InvalidError nothing was sent; the other ranks wait until their deadline, or until the mismatch shows.
"""

from __future__ import annotations

import ctypes
from ctypes import addressof, byref, c_int, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any, Generic, List, Optional, Sequence, Tuple, TypeVar

from . import _groups, _ops
from ._buffers import Buffer, buffer_of
from ._dtypes import DType
from ._library import OK, Call, lib
from ._ops import SUM, Op, numbers_of
from ._works import Flight, State, Work, end_here, failure_of, wait_here
from .errors import InvalidError, error_of

if TYPE_CHECKING:
    from typing import TypedDict

    from typing_extensions import Unpack

    class Options(TypedDict, total=False):
        """Of every call."""

        dtype: Any
        timeout: Optional[float]
        label: Optional[str]
        stream: Optional[int]


ANY = -1
R = TypeVar("R")


def _plain(call: str, what: str, memory: Any, options: "Options") -> Buffer:
    try:
        return buffer_of(memory, options.get("dtype"))
    except InvalidError as error:
        raise InvalidError(f"{call}: {what}: {error}") from None


def _written(call: str, what: str, memory: Any, options: "Options") -> Buffer:
    found = _plain(call, what, memory, options)
    if not found.is_writable:
        raise InvalidError(f"{call}: {what} is read-only, and the result is written there")
    return found


def _same_dtype(call: str, a: Buffer, b: Buffer) -> None:
    if a.dtype is not b.dtype and a.dtype != b.dtype:
        raise InvalidError(f"{call}: send has elements of {a.dtype.name} and recv of {b.dtype.name}: they must be equal")


def _needs(call: str, what: str, have: int, needed: int, why: str) -> None:
    if have != needed:
        raise InvalidError(f"{call}: {what} has {have} elements and needs {needed}: {why}")


class _Table:
    """counts and offsets of a v-variant, in elements: as arrays for the library, and the end of the last block."""

    def __init__(self, call: str, size: int, counts: Sequence[int], offsets: Optional[Sequence[int]], parts: int, names: str = ""):
        self.counts = [int(n) for n in counts]
        self.offsets = None if offsets is None else [int(n) for n in offsets]
        for what, numbers in ((names + "counts", self.counts), (names + "offsets", self.offsets)):
            if numbers is not None and len(numbers) != size:
                raise InvalidError(f"{call}: {what} has {len(numbers)} numbers and needs {size}, one for each rank")
            if numbers is not None and any(n < 0 or n >= 2**62 for n in numbers):
                raise InvalidError(f"{call}: {what} has a negative number, or one beyond all memory: {numbers}")
        at = 0
        self.starts: List[int] = []
        for n in self.counts:
            self.starts.append(at)
            at += n
        self.starts = self.starts if self.offsets is None else self.offsets
        self.end = max((start + n for start, n in zip(self.starts, self.counts) if n), default=0)
        array = c_size_t * size
        self.counts_array = array(*(n * parts for n in self.counts))
        self.offsets_array = None if self.offsets is None else array(*(n * parts for n in self.offsets))

    def check(self, call: str, what: str, have: int) -> None:
        if have < self.end:
            raise InvalidError(f"{call}: {what} has {have} elements and needs {self.end}: its last block ends there")

    def block(self, buffer: Buffer, rank: int) -> Optional[int]:
        """The address of a rank's block."""
        return None if buffer.address is None else buffer.address + self.starts[rank] * buffer.dtype.bytes


def _block(buffer: Buffer, first: int) -> Optional[int]:
    return None if buffer.address is None else buffer.address + first * buffer.dtype.bytes


class Calls(Generic[R]):
    """The calls of a communicator. Every rank makes the same calls in the same order, with equal counts, dtype, op and root.

    Buffers: NumPy arrays, tensors of torch, what has the buffer protocol, __dlpack__ or __cuda_array_interface__. Their
    elements are counted, their shape is not looked at; they are C-contiguous. The library uses them until the call is over.
    P is size. Options of every call, as keywords:
        dtype    of the elements, where the buffer does not say so itself: "bf16" of uint16, "f32" of a bytearray
        timeout  in seconds; passing it fails the communicator. Without: the communicator's
        label    for traces, such as "unit h.3"
        stream   the address of a CUDA stream: the call, of device memory, is enqueued there and does not block the CPU;
                 the buffers are the stream's until it has come to its end
    Errors: InvalidError (here alone, nothing was sent), and the communicator's own failure: TimeoutError, PeerError,
    MismatchError, AbortedError, OutOfMemoryError, SystemCallError, DeviceError; UnsupportedError.
    """

    _state: State
    rank: int
    size: int

    def _issue(self, name: str, function: Any, arguments: Tuple[Any, ...], keep: Any, op: Optional[Op], options: "Options", tag: int = 0, source: Optional[c_int] = None) -> R:
        raise NotImplementedError

    def all_reduce(self, send: Any, recv: Any = None, op: Op = SUM, **options: "Unpack[Options]") -> R:
        """recv[i] = send[i] of rank 0 (op) ... (op) send[i] of rank P - 1, on every rank. Without recv in place."""
        if recv is None:
            s = r = _written("all_reduce", "send", send, options)
        else:
            s, r = _plain("all_reduce", "send", send, options), _written("all_reduce", "recv", recv, options)
            _same_dtype("all_reduce", s, r)
            _needs("all_reduce", "recv", r.count, s.count, "as many as send")
        number, code, parts = numbers_of("all_reduce", op, s.dtype)
        return self._issue("all_reduce", lib.tutti_all_reduce, (s.address, r.address, s.count * parts, code, number), (s, r), op, options)

    def reduce(self, send: Any, recv: Any = None, op: Op = SUM, root: int = 0, **options: "Unpack[Options]") -> R:
        """The same, with the result on root alone. Without recv in place there; elsewhere recv is not used."""
        is_root = root == self.rank
        s = (_written if is_root and recv is None else _plain)("reduce", "send", send, options)
        r = s
        if is_root and recv is not None:
            r = _written("reduce", "recv", recv, options)
            _same_dtype("reduce", s, r)
            _needs("reduce", "recv", r.count, s.count, "as many as send")
        number, code, parts = numbers_of("reduce", op, s.dtype)
        arguments = (s.address, r.address if is_root else None, s.count * parts, code, number, root)
        return self._issue("reduce", lib.tutti_reduce, arguments, (s, r), op, options)

    def broadcast(self, buffer: Any, root: int = 0, **options: "Unpack[Options]") -> R:
        """The elements of root's buffer to every rank's. On root it is only read."""
        b = (_plain if root == self.rank else _written)("broadcast", "buffer", buffer, options)
        return self._issue("broadcast", lib.tutti_broadcast, (b.address, b.address, b.count * b.dtype.parts, b.dtype.code, root), b, None, options)

    def all_gather(self, send: Any, recv: Any, **options: "Unpack[Options]") -> R:
        """recv = send of rank 0, ..., send of rank P - 1, one behind another. send None: it is the own block of recv."""
        r = _written("all_gather", "recv", recv, options)
        count, s = self._block_and(send, r, "all_gather", "send", "recv", options)
        address = _block(r, self.rank * count) if s is None else s.address
        return self._issue("all_gather", lib.tutti_all_gather, (address, r.address, count * r.dtype.parts, r.dtype.code), (s, r), None, options)

    def reduce_scatter(self, send: Any, recv: Any = None, op: Op = SUM, **options: "Unpack[Options]") -> R:
        """send has P blocks; recv becomes the reduced block of this rank. recv None: it is the own block of send."""
        s = (_written if recv is None else _plain)("reduce_scatter", "send", send, options)
        count, r = self._block_and(recv, s, "reduce_scatter", "recv", "send", options)
        address = _block(s, self.rank * count) if r is None else r.address
        number, code, parts = numbers_of("reduce_scatter", op, s.dtype)
        return self._issue("reduce_scatter", lib.tutti_reduce_scatter, (s.address, address, count * parts, code, number), (s, r), op, options)

    def gather(self, send: Any, recv: Any = None, root: int = 0, **options: "Unpack[Options]") -> R:
        """root's recv = send of rank 0, ..., of rank P - 1. On root send may be None: it is the own block of recv."""
        if root != self.rank:
            s = _plain("gather", "send", send, options)
            return self._issue("gather", lib.tutti_gather, (s.address, None, s.count * s.dtype.parts, s.dtype.code, root), s, None, options)
        r = _written("gather", "recv", recv, options)
        count, own = self._block_and(send, r, "gather", "send", "recv", options)
        address = _block(r, self.rank * count) if own is None else own.address
        return self._issue("gather", lib.tutti_gather, (address, r.address, count * r.dtype.parts, r.dtype.code, root), (own, r), None, options)

    def scatter(self, send: Any, recv: Any = None, root: int = 0, **options: "Unpack[Options]") -> R:
        """recv = the block of root's send that is this rank's. On root recv may be None: its block stays where it is."""
        if root != self.rank:
            r = _written("scatter", "recv", recv, options)
            return self._issue("scatter", lib.tutti_scatter, (None, r.address, r.count * r.dtype.parts, r.dtype.code, root), r, None, options)
        s = _plain("scatter", "send", send, options)
        count, own = self._block_and(recv, s, "scatter", "recv", "send", options)
        address = _block(s, self.rank * count) if own is None else own.address
        return self._issue("scatter", lib.tutti_scatter, (s.address, address, count * s.dtype.parts, s.dtype.code, root), (s, own), None, options)

    def all_to_all(self, send: Any, recv: Any, **options: "Unpack[Options]") -> R:
        """Both have P blocks: block r of send goes to rank r, block r of recv comes from it. send None: in place."""
        r = _written("all_to_all", "recv", recv, options)
        s = r if send is None else _plain("all_to_all", "send", send, options)
        _same_dtype("all_to_all", s, r)
        _needs("all_to_all", "recv", r.count, s.count, "as many as send")
        if r.count % self.size:
            raise InvalidError(f"all_to_all: recv has {r.count} elements, which are no {self.size} equal blocks")
        return self._issue("all_to_all", lib.tutti_all_to_all, (s.address, r.address, r.count // self.size * r.dtype.parts, r.dtype.code), (s, r), None, options)

    def _block_and(self, block: Any, whole: Buffer, call: str, block_name: str, whole_name: str, options: "Options") -> Tuple[int, Optional[Buffer]]:
        """The elements of a block; and its buffer, or None where it is the own block of whole, which has P of them."""
        if block is None:
            if whole.count % self.size:
                raise InvalidError(f"{call}: {whole_name} has {whole.count} elements, which are no {self.size} equal blocks")
            return whole.count // self.size, None
        b = (_written if block_name == "recv" else _plain)(call, block_name, block, options)
        if b.dtype != whole.dtype:
            raise InvalidError(f"{call}: {block_name} has elements of {b.dtype.name} and {whole_name} of {whole.dtype.name}: they must be equal")
        _needs(call, whole_name, whole.count, b.count * self.size, f"{b.count} of {block_name} for each of {self.size} ranks")
        return b.count, b

    def all_gatherv(self, send: Any, recv: Any, counts: Sequence[int], offsets: Optional[Sequence[int]] = None, **options: "Unpack[Options]") -> R:
        """counts[i] elements of rank i to recv from offsets[i] on. offsets None: one behind another. Equal on all ranks.

        send None: it is the own block of recv.
        """
        r = _written("all_gatherv", "recv", recv, options)
        table = _Table("all_gatherv", self.size, counts, offsets, r.dtype.parts)
        table.check("all_gatherv", "recv", r.count)
        s = self._own_block("all_gatherv", "send", send, r.dtype, table, options)
        address = table.block(r, self.rank) if s is None else s.address
        return self._issue("all_gatherv", lib.tutti_all_gatherv, (address, r.address, table.counts_array, table.offsets_array, r.dtype.code), (s, r, table), None, options)

    def reduce_scatterv(self, send: Any, recv: Any, counts: Sequence[int], offsets: Optional[Sequence[int]] = None, op: Op = SUM, **options: "Unpack[Options]") -> R:
        """send has a block for each rank; recv becomes this rank's, reduced. recv None: it is the own block of send."""
        s = (_written if recv is None else _plain)("reduce_scatterv", "send", send, options)
        number, code, parts = numbers_of("reduce_scatterv", op, s.dtype)
        table = _Table("reduce_scatterv", self.size, counts, offsets, parts)
        table.check("reduce_scatterv", "send", s.count)
        r = self._own_block("reduce_scatterv", "recv", recv, s.dtype, table, options)
        address = table.block(s, self.rank) if r is None else r.address
        return self._issue("reduce_scatterv", lib.tutti_reduce_scatterv, (s.address, address, table.counts_array, table.offsets_array, code, number), (s, r, table), op, options)

    def gatherv(self, send: Any, recv: Any, counts: Sequence[int], offsets: Optional[Sequence[int]] = None, root: int = 0, **options: "Unpack[Options]") -> R:
        """As all_gatherv, with the result on root alone; elsewhere recv is not used. counts are equal on all ranks."""
        is_root = root == self.rank
        r = _written("gatherv", "recv", recv, options) if is_root else None
        whole = r if r is not None else _plain("gatherv", "send", send, options)
        table = _Table("gatherv", self.size, counts, offsets, whole.dtype.parts)
        if r is not None:
            table.check("gatherv", "recv", r.count)
        s = self._own_block("gatherv", "send", send, whole.dtype, table, options)
        address = s.address if s is not None else table.block(whole, self.rank)
        arguments = (address, r.address if r is not None else None, table.counts_array, table.offsets_array, whole.dtype.code, root)
        return self._issue("gatherv", lib.tutti_gatherv, arguments, (s, r, table), None, options)

    def scatterv(self, send: Any, recv: Any, counts: Sequence[int], offsets: Optional[Sequence[int]] = None, root: int = 0, **options: "Unpack[Options]") -> R:
        """recv = this rank's block of root's send; elsewhere send is not used. On root recv may be None: its block stays."""
        is_root = root == self.rank
        s = _plain("scatterv", "send", send, options) if is_root else None
        whole = s if s is not None else _written("scatterv", "recv", recv, options)
        table = _Table("scatterv", self.size, counts, offsets, whole.dtype.parts)
        if s is not None:
            table.check("scatterv", "send", s.count)
        r = self._own_block("scatterv", "recv", recv, whole.dtype, table, options)
        address = r.address if r is not None else table.block(whole, self.rank)
        arguments = (s.address if s is not None else None, address, table.counts_array, table.offsets_array, whole.dtype.code, root)
        return self._issue("scatterv", lib.tutti_scatterv, arguments, (s, r, table), None, options)

    def all_to_allv(self, send: Any, send_counts: Sequence[int], recv: Any, recv_counts: Sequence[int], send_offsets: Optional[Sequence[int]] = None, recv_offsets: Optional[Sequence[int]] = None, **options: "Unpack[Options]") -> R:
        """send_counts[r] elements to rank r, recv_counts[r] from it: each pair of ranks agrees. send None: in place."""
        r = _written("all_to_allv", "recv", recv, options)
        s = r if send is None else _plain("all_to_allv", "send", send, options)
        _same_dtype("all_to_allv", s, r)
        out = _Table("all_to_allv", self.size, send_counts, send_offsets, s.dtype.parts, "send_")
        in_ = _Table("all_to_allv", self.size, recv_counts, recv_offsets, s.dtype.parts, "recv_")
        out.check("all_to_allv", "send", s.count)
        in_.check("all_to_allv", "recv", r.count)
        arguments = (s.address, out.counts_array, out.offsets_array, r.address, in_.counts_array, in_.offsets_array, s.dtype.code)
        return self._issue("all_to_allv", lib.tutti_all_to_allv, arguments, (s, r, out, in_), None, options)

    def _own_block(self, call: str, what: str, memory: Any, dtype: DType, table: _Table, options: "Options") -> Optional[Buffer]:
        """The buffer of this rank's block; None: the block lies within the other buffer."""
        if memory is None:
            return None
        b = (_written if what == "recv" else _plain)(call, what, memory, options)
        if b.dtype != dtype:
            raise InvalidError(f"{call}: {what} has elements of {b.dtype.name} and the other buffer of {dtype.name}: they must be equal")
        _needs(call, what, b.count, table.counts[self.rank], f"counts[{self.rank}], of this rank")
        return b

    def barrier(self, **options: "Unpack[Options]") -> R:
        """Returns on no rank before every rank has called it."""
        return self._issue("barrier", lib.tutti_barrier, (), None, None, options)

    def send(self, buffer: Any, peer: int, tag: int = 0, **options: "Unpack[Options]") -> R:
        """A message to rank peer; messages of one tag (>= 0) come in order. Its recv has the same count and dtype."""
        b = _plain("send", "buffer", buffer, options)
        return self._issue("send", lib.tutti_send, (b.address, b.count * b.dtype.parts, b.dtype.code, peer), b, None, options, tag)

    def _recv(self, buffer: Any, peer: int, tag: int, options: "Options", source: c_int) -> R:
        b = _written("recv", "buffer", buffer, options)
        arguments = (b.address, b.count * b.dtype.parts, b.dtype.code, peer)
        return self._issue("recv", lib.tutti_recv, arguments, b, None, options, tag, source)


def call_of(options: "Options", cell: Optional[c_void_p], stream: Optional[int], tag: int, source: Optional[c_int]) -> Call:
    call = Call()
    if cell is not None:
        call.work = addressof(cell)
    if stream:
        call.stream = stream
    if options:
        unknown = options.keys() - {"dtype", "timeout", "label", "stream"}
        if unknown:
            raise TypeError(f"unexpected keyword: {', '.join(sorted(unknown))}")
        call.timeout_ms = _groups.timeout_ms(options.get("timeout"))
        label = options.get("label")
        call.label = label.encode() if label else None
    if source is not None:
        call.source = addressof(source)
    call.tag = tag
    return call


def stream_of(keep: Any) -> Optional[int]:
    """The stream that a device buffer of the call came with."""
    for buffer in keep if isinstance(keep, tuple) else (keep,):
        if isinstance(buffer, Buffer) and buffer.stream:
            return buffer.stream
    return None


def begin(calls: Calls[Any], name: str, function: Any, arguments: Tuple[Any, ...], keep: Any, op: Optional[Op], options: "Options", tag: int, source: Optional[c_int]) -> Optional[Flight]:
    """Issues a call with a handle. None: a group has collected it."""
    state = calls._state
    issued = _enter(state, name)
    ops = () if op is None or op._function is None else (op,)
    if issued is not None:
        check_status(function(*arguments, state.handle, byref(call_of(options, None, None, tag, source))))
        issued.add(state, (keep, source), ops)
        return None
    cell = c_void_p()
    call = call_of(options, cell, options.get("stream") or stream_of(keep), tag, source)
    try:
        check_status(function(*arguments, state.handle, byref(call)))
        return Flight(name, cell, (state,), keep, ops, source)
    except BaseException:
        if cell.value and not any(flight.cell is cell for flight in state.flights):
            end_here((state,), cell)
        raise


def _enter(state: State, name: str) -> Optional[_groups.group]:
    if state.handle is None:
        raise InvalidError(f"{name}: the communicator was destroyed")
    if state.has_dropped:
        state.sweep()
    return _groups.current()


def check_status(status: int) -> None:
    if status != OK:
        raise error_of(status)


def run(calls: Calls[Any], name: str, function: Any, arguments: Tuple[Any, ...], keep: Any, op: Optional[Op], options: "Options", tag: int, source: Optional[c_int]) -> None:
    """A call that returns when its result is there; in a group, when it was collected; with a stream, when it was enqueued."""
    state = calls._state
    if _enter(state, name) is not None:
        begin(calls, name, function, arguments, keep, op, options, tag, source)
        return
    stream = options.get("stream") if options else None
    if stream and all(b.is_device for b in (keep if isinstance(keep, tuple) else (keep,)) if isinstance(b, Buffer)):
        check_status(function(*arguments, state.handle, byref(call_of(options, None, stream, tag, source))))
        return
    cell, states = c_void_p(), (state,)
    call = call_of(options, cell, stream or stream_of(keep), tag, source)
    active = state.active
    active.append(None)
    try:
        status = function(*arguments, state.handle, byref(call))
        if status == OK:
            status = wait_here(states, cell)
    except BaseException:
        if cell.value:  # the exception came between the two
            end_here(states, cell)
        raise
    finally:
        active.pop()
    if op is not None and op._function is not None:
        failure = failure_of((op,), states)
        if failure is not None:
            raise failure
    if status != OK:
        raise error_of(status)


__all__ = ["ANY", "Calls", "Work", "begin", "run", "_ops", "ctypes"]
