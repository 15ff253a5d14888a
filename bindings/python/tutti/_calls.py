"""The collectives and messages of a communicator.

The library knows no buffer's length, so each call compares its buffers' elements with what it needs before anything is
sent. After an InvalidError nothing was sent; the other ranks wait until their deadline, or until the mismatch shows.
"""

from __future__ import annotations

from ctypes import c_int
from typing import TYPE_CHECKING, Any, Generic, Optional, Sequence, Tuple, TypeVar

from ._buffers import Buffer
from ._checks import Table, block_at, block_count, fits, needs, own_block, plain, same_dtype, written
from ._flights import State
from ._issue import CallArgs
from ._ops import SUM, Op, numbers_of
from ._types import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack

ANY = -1  # recv: from whichever rank sends first
R = TypeVar("R")  # None where a call returns when its result is there, else Work


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

    def _issue(self, args: CallArgs) -> R:
        raise NotImplementedError

    def all_reduce(self, send: Any, recv: Any = None, op: Op = SUM, **options: Unpack[Options]) -> R:
        """recv[i] = send[i] of rank 0 (op) ... (op) send[i] of rank P - 1, on every rank. Without recv in place."""
        if recv is None:
            s = r = written("all_reduce", "send", send, options)
        else:
            s, r = plain("all_reduce", "send", send, options), written("all_reduce", "recv", recv, options)
            same_dtype("all_reduce", s, r)
            needs("all_reduce", "recv", r.count, s.count, "as many as send")
        number, code, parts = numbers_of("all_reduce", op, s.dtype)
        return self._issue(CallArgs("all_reduce", (s.address, r.address, s.count * parts, code, number), (s, r), options, op))

    def reduce(self, send: Any, recv: Any = None, op: Op = SUM, root: int = 0, **options: Unpack[Options]) -> R:
        """The same, with the result on root alone. Without recv in place there; elsewhere recv is not used."""
        is_root = fits("reduce", "root", root) == self.rank
        s = (written if is_root and recv is None else plain)("reduce", "send", send, options)
        r = s
        if is_root and recv is not None:
            r = written("reduce", "recv", recv, options)
            same_dtype("reduce", s, r)
            needs("reduce", "recv", r.count, s.count, "as many as send")
        number, code, parts = numbers_of("reduce", op, s.dtype)
        arguments = (s.address, r.address if is_root else None, s.count * parts, code, number, root)
        return self._issue(CallArgs("reduce", arguments, (s, r), options, op))

    def broadcast(self, buffer: Any, root: int = 0, **options: Unpack[Options]) -> R:
        """The elements of root's buffer to every rank's. On root it is only read."""
        b = (plain if fits("broadcast", "root", root) == self.rank else written)("broadcast", "buffer", buffer, options)
        return self._issue(
            CallArgs("broadcast", (b.address, b.address, b.count * b.dtype.parts, b.dtype.code, root), (b,), options)
        )

    def all_gather(self, send: Any, recv: Any, **options: Unpack[Options]) -> R:
        """recv = send of rank 0, ..., send of rank P - 1, one behind another. send None: it is the own block of recv."""
        r = written("all_gather", "recv", recv, options)
        count, address, s = self._own_block("all_gather", "send", send, r, options)
        return self._issue(CallArgs("all_gather", (address, r.address, count * r.dtype.parts, r.dtype.code), (s, r), options))

    def reduce_scatter(self, send: Any, recv: Any = None, op: Op = SUM, **options: Unpack[Options]) -> R:
        """send has P blocks; recv becomes the reduced block of this rank. recv None: it is the own block of send."""
        s = (written if recv is None else plain)("reduce_scatter", "send", send, options)
        count, address, r = self._own_block("reduce_scatter", "recv", recv, s, options)
        number, code, parts = numbers_of("reduce_scatter", op, s.dtype)
        return self._issue(CallArgs("reduce_scatter", (s.address, address, count * parts, code, number), (s, r), options, op))

    def gather(self, send: Any, recv: Any = None, root: int = 0, **options: Unpack[Options]) -> R:
        """root's recv = send of rank 0, ..., of rank P - 1. On root send may be None: it is the own block of recv."""
        if fits("gather", "root", root) != self.rank:
            s = plain("gather", "send", send, options)
            return self._issue(
                CallArgs("gather", (s.address, None, s.count * s.dtype.parts, s.dtype.code, root), (s,), options)
            )
        r = written("gather", "recv", recv, options)
        count, address, own = self._own_block("gather", "send", send, r, options)
        return self._issue(
            CallArgs("gather", (address, r.address, count * r.dtype.parts, r.dtype.code, root), (own, r), options)
        )

    def scatter(self, send: Any, recv: Any = None, root: int = 0, **options: Unpack[Options]) -> R:
        """recv = the block of root's send that is this rank's. On root recv may be None: its block stays where it is."""
        if fits("scatter", "root", root) != self.rank:
            r = written("scatter", "recv", recv, options)
            return self._issue(
                CallArgs("scatter", (None, r.address, r.count * r.dtype.parts, r.dtype.code, root), (r,), options)
            )
        s = plain("scatter", "send", send, options)
        count, address, own = self._own_block("scatter", "recv", recv, s, options)
        return self._issue(
            CallArgs("scatter", (s.address, address, count * s.dtype.parts, s.dtype.code, root), (s, own), options)
        )

    def all_to_all(self, send: Any, recv: Any, **options: Unpack[Options]) -> R:
        """Both have P blocks: block r of send goes to rank r, block r of recv comes from it. send None: in place."""
        r = written("all_to_all", "recv", recv, options)
        s = r if send is None else plain("all_to_all", "send", send, options)
        same_dtype("all_to_all", s, r)
        needs("all_to_all", "recv", r.count, s.count, "as many as send")
        count = block_count("all_to_all", "recv", r, self.size)
        return self._issue(CallArgs("all_to_all", (s.address, r.address, count * r.dtype.parts, r.dtype.code), (s, r), options))

    def _own_block(
        self, call: str, what: str, memory: Any, whole: Buffer, options: Options
    ) -> Tuple[int, Optional[int], Optional[Buffer]]:
        """The elements of a block; where this rank's is; and its buffer, or None: it lies within whole, as all ranks' do."""
        b = own_block(call, what, memory, whole, options)
        other = "send" if what == "recv" else "recv"
        if b is None:
            count = block_count(call, other, whole, self.size)
            return count, block_at(whole, self.rank * count), None
        needs(call, other, whole.count, b.count * self.size, f"{b.count} of {what} for each of {self.size} ranks")
        return b.count, b.address, b

    def all_gatherv(
        self,
        send: Any,
        recv: Any,
        counts: Sequence[int],
        offsets: Optional[Sequence[int]] = None,
        **options: Unpack[Options],
    ) -> R:
        """counts[i] elements of rank i to recv from offsets[i] on. offsets None: one behind another. Equal on all ranks.

        send None: it is the own block of recv.
        """
        r = written("all_gatherv", "recv", recv, options)
        table = Table("all_gatherv", self.size, counts, offsets, r.dtype.parts)
        table.check("recv", r.count)
        address, s = self._table_block(table, "send", send, r, options)
        return self._issue(CallArgs("all_gatherv", (address, r.address, *table.arrays, r.dtype.code), (s, r, table), options))

    def reduce_scatterv(
        self,
        send: Any,
        recv: Any,
        counts: Sequence[int],
        offsets: Optional[Sequence[int]] = None,
        op: Op = SUM,
        **options: Unpack[Options],
    ) -> R:
        """send has a block for each rank; recv becomes this rank's, reduced. recv None: it is the own block of send."""
        s = (written if recv is None else plain)("reduce_scatterv", "send", send, options)
        number, code, parts = numbers_of("reduce_scatterv", op, s.dtype)
        table = Table("reduce_scatterv", self.size, counts, offsets, parts)
        table.check("send", s.count)
        address, r = self._table_block(table, "recv", recv, s, options)
        return self._issue(
            CallArgs("reduce_scatterv", (s.address, address, *table.arrays, code, number), (s, r, table), options, op)
        )

    def gatherv(
        self,
        send: Any,
        recv: Any,
        counts: Sequence[int],
        offsets: Optional[Sequence[int]] = None,
        root: int = 0,
        **options: Unpack[Options],
    ) -> R:
        """As all_gatherv, with the result on root alone; elsewhere recv is not used. counts are equal on all ranks."""
        is_root = fits("gatherv", "root", root) == self.rank
        r = written("gatherv", "recv", recv, options) if is_root else None
        whole = r if r is not None else plain("gatherv", "send", send, options)
        table = Table("gatherv", self.size, counts, offsets, whole.dtype.parts)
        if r is not None:
            table.check("recv", r.count)
        address, s = self._table_block(table, "send", send, whole, options)
        arguments = (address, r.address if r is not None else None, *table.arrays, whole.dtype.code, root)
        return self._issue(CallArgs("gatherv", arguments, (s, r, table), options))

    def scatterv(
        self,
        send: Any,
        recv: Any,
        counts: Sequence[int],
        offsets: Optional[Sequence[int]] = None,
        root: int = 0,
        **options: Unpack[Options],
    ) -> R:
        """recv = this rank's block of root's send; elsewhere send is not used. On root recv may be None: its block stays."""
        is_root = fits("scatterv", "root", root) == self.rank
        s = plain("scatterv", "send", send, options) if is_root else None
        whole = s if s is not None else written("scatterv", "recv", recv, options)
        table = Table("scatterv", self.size, counts, offsets, whole.dtype.parts)
        if s is not None:
            table.check("send", s.count)
        address, r = self._table_block(table, "recv", recv, whole, options)
        arguments = (s.address if s is not None else None, address, *table.arrays, whole.dtype.code, root)
        return self._issue(CallArgs("scatterv", arguments, (s, r, table), options))

    def all_to_allv(
        self,
        send: Any,
        send_counts: Sequence[int],
        recv: Any,
        recv_counts: Sequence[int],
        send_offsets: Optional[Sequence[int]] = None,
        recv_offsets: Optional[Sequence[int]] = None,
        **options: Unpack[Options],
    ) -> R:
        """send_counts[r] elements to rank r, recv_counts[r] from it: each pair of ranks agrees. send None: in place."""
        r = written("all_to_allv", "recv", recv, options)
        s = r if send is None else plain("all_to_allv", "send", send, options)
        same_dtype("all_to_allv", s, r)
        out = Table("all_to_allv", self.size, send_counts, send_offsets, s.dtype.parts, "send_")
        in_ = Table("all_to_allv", self.size, recv_counts, recv_offsets, s.dtype.parts, "recv_")
        out.check("send", s.count)
        in_.check("recv", r.count)
        arguments = (s.address, *out.arrays, r.address, *in_.arrays, s.dtype.code)
        return self._issue(CallArgs("all_to_allv", arguments, (s, r, out, in_), options))

    def _table_block(
        self, table: Table, what: str, memory: Any, whole: Buffer, options: Options
    ) -> Tuple[Optional[int], Optional[Buffer]]:
        """Where this rank's block is; and its buffer, or None: it lies within whole."""
        b = own_block(table.call, what, memory, whole, options)
        if b is None:
            return table.block(whole, self.rank), None
        needs(table.call, what, b.count, table.counts[self.rank], f"counts[{self.rank}], of this rank")
        return b.address, b

    def barrier(self, **options: Unpack[Options]) -> R:
        """Returns on no rank before every rank has called it."""
        return self._issue(CallArgs("barrier", (), (), options))

    def send(self, buffer: Any, peer: int, tag: int = 0, **options: Unpack[Options]) -> R:
        """A message to rank peer; messages of one tag (>= 0) come in order. Its recv has the same count and dtype."""
        b = plain("send", "buffer", buffer, options)
        arguments = (b.address, b.count * b.dtype.parts, b.dtype.code, fits("send", "peer", peer))
        return self._issue(CallArgs("send", arguments, (b,), options, tag=fits("send", "tag", tag)))

    def _recv(self, buffer: Any, peer: int, tag: int, options: Options, source: c_int) -> R:
        b = written("recv", "buffer", buffer, options)
        arguments = (b.address, b.count * b.dtype.parts, b.dtype.code, fits("recv", "peer", peer))
        return self._issue(CallArgs("recv", arguments, (b,), options, tag=fits("recv", "tag", tag), source=source))
