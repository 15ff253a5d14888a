"""mpi4py's spelling of Tutti's calls, for programs that were written for it: from tutti import mpi as MPI.

Methods with a capital letter take buffers: an array; [array, count], [array, count, displacement] and
[array, (count, displacement)]; where ranks have counts of their own each number may be a list of these. A type may stand
behind all of them. IN_PLACE stands for the buffer of this side. Methods with a small letter take objects
(_mpi_objects.py). What differs from MPI:
    COMM_WORLD joins in its first call, by the launcher's environment
    a message has exactly as many elements as the buffer of its recv
    a recv names its tag, 0 by default: ANY_TAG is an UnsupportedError
    errors are exceptions of Tutti, and a rank that dies is one on all others
Gatherv and Scatterv make a small call before, since Tutti's ranks all know the counts; so do reductions of pairs, whose
ranks agree that all can go on.
"""

import array
import builtins
import ctypes
import socket
import time
from typing import Any, Callable, Optional, Sequence, Tuple

from . import _communicator
from ._buffers import Buffer, buffer_of
from ._checks import needs, written
from ._groups import group
from ._mpi_absent import Names, module_attribute
from ._mpi_buffers import IN_PLACE, Vector, buffer_at, numbers_of, size_in_bytes, vector_of
from ._mpi_objects import ObjectCalls
from ._mpi_ops import (
    BAND,
    BOR,
    BXOR,
    LAND,
    LOR,
    LXOR,
    MAX,
    MAXLOC,
    MIN,
    MINLOC,
    PROD,
    SUM,
    Op,
    fold_pairs,
    is_of_pairs,
    library_op,
)
from ._mpi_requests import ANY_SOURCE, ANY_TAG, PROC_NULL, RECEIVED_NOTHING, REQUEST_NULL, UNDEFINED, Request, Status
from ._mpi_types import *
from ._mpi_types import PAIRS
from ._objects import agree
from .errors import Error, InvalidError, UnsupportedError

__getattr__ = module_attribute
Exception = Error  # mpi4py's name
_Sides = Tuple[Optional[Buffer], Optional[Buffer]]


def _tag(tag: int) -> int:
    if tag == ANY_TAG:
        raise UnsupportedError("ANY_TAG: a recv of Tutti names its tag, which is 0 where none is given")
    return tag


def _check_host(call: str, buffer: Optional[Buffer]) -> None:
    if buffer is not None and buffer.is_device:
        raise UnsupportedError(f"{call} does not accept GPU memory: pass an array in CPU memory")


def _sides_of_pairs(call: str, send: Optional[Buffer], recv: Optional[Buffer], op: Op, is_here: bool) -> Tuple[Buffer, Buffer]:
    """The pairs, and where the result is stored if it is here."""
    if send is None or send.dtype not in PAIRS:
        raise UnsupportedError(f"{call}: {op!r} works on pairs, as [array, MPI.DOUBLE_INT], or objects: allreduce(x, op)")
    result = send if recv is None else recv
    if is_here:
        written(call, "recvbuf", result, {})
        needs(call, "recvbuf", result.count, send.count, "as many as sendbuf")
        _check_host(call, result)
    return send, result


def _store(data: Any, buffer: Optional[Buffer]) -> None:
    """Copies data to the beginning of a buffer in CPU memory."""
    if data and buffer is not None and buffer.address:
        ctypes.memmove(buffer.address, bytes(data), len(data))


class Comm(ObjectCalls, Names):
    """mpi4py's Comm over one of Tutti, .tutti."""

    def __init__(self, comm: Optional[_communicator.Comm], join: Optional[Callable[[], _communicator.Comm]] = None):
        self._comm, self._join = comm, join

    @property
    def tutti(self) -> _communicator.Comm:
        if self._comm is None:
            if self._join is None:
                raise InvalidError("the communicator was freed")
            self._comm = self._join()
        return self._comm

    def Get_rank(self) -> int:
        return self.tutti.rank

    def Get_size(self) -> int:
        return self.tutti.size

    rank = property(Get_rank)
    size = property(Get_size)

    def Get_name(self) -> str:
        return self.tutti.config.name or ""

    name = property(Get_name)

    # ---- collectives: Name, which returns when its result is there, and Iname, which gives a Request

    def Barrier(self) -> None:
        self.tutti.barrier()

    def Ibarrier(self) -> Request:
        return Request(self.tutti.start.barrier())

    def Bcast(self, buf: Any, root: int = 0) -> None:
        self.tutti.broadcast(buffer_at(buf), root)

    def Ibcast(self, buf: Any, root: int = 0) -> Request:
        return Request(self.tutti.start.broadcast(buffer_at(buf), root))

    @staticmethod
    def _sides(sendbuf: Any, recvbuf: Any) -> _Sides:
        """In place the one buffer is first, and the second None."""
        if sendbuf is IN_PLACE:
            return buffer_at(recvbuf), None
        send, recv = buffer_at(sendbuf), buffer_at(recvbuf)
        if recv is None:  # and without it Tutti's calls are in place
            raise InvalidError(f"recvbuf is {recvbuf}: pass a buffer, and IN_PLACE as sendbuf for a result in place")
        return send, recv

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> None:
        if is_of_pairs(op):
            self._fold("Allreduce", lambda: self._sides(sendbuf, recvbuf), op)
        else:
            sides = self._sides(sendbuf, recvbuf)
            self.tutti.all_reduce(*sides, op=library_op("Allreduce", op, sides[0], sendbuf, recvbuf))

    def Iallreduce(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> Request:
        sides = self._sides(sendbuf, recvbuf)
        return Request(self.tutti.start.all_reduce(*sides, op=library_op("Iallreduce", op, sides[0], sendbuf, recvbuf)))

    def _of_reduce(self, sendbuf: Any, recvbuf: Any, root: int) -> _Sides:
        is_used = self.rank == root or sendbuf is IN_PLACE
        return self._sides(sendbuf, recvbuf) if is_used else (buffer_at(sendbuf), None)

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: Any = SUM, root: int = 0) -> None:
        if is_of_pairs(op):
            self._check_root("Reduce", root)
            self._fold("Reduce", lambda: self._of_reduce(sendbuf, recvbuf, root), op, root)
        else:
            sides = self._of_reduce(sendbuf, recvbuf, root)
            self.tutti.reduce(*sides, op=library_op("Reduce", op, sides[0], sendbuf, recvbuf), root=root)

    def Ireduce(self, sendbuf: Any, recvbuf: Any, op: Any = SUM, root: int = 0) -> Request:
        sides = self._of_reduce(sendbuf, recvbuf, root)
        return Request(self.tutti.start.reduce(*sides, op=library_op("Ireduce", op, sides[0], sendbuf, recvbuf), root=root))

    def _fold(self, call: str, sides: Callable[[], _Sides], op: Op, root: Optional[int] = None) -> None:
        """Gathers the pairs of all ranks, then reduces them on root; root None: on all ranks. If one rank passes buffers that
        cannot be used, all raise: the others would wait for it."""
        is_here, refused = root in (None, self.rank), None
        try:
            send, result = _sides_of_pairs(call, *sides(), op, is_here)
        except builtins.Exception as error:
            refused = error
        agree(self.tutti, call, refused)
        whole = buffer_of(raw := bytearray(size_in_bytes(send) * self.size if is_here else 0))
        whole.dtype, whole.count = send.dtype, whole.count // send.dtype.bytes
        if root is None:
            self.tutti.all_gather(send, whole)
        else:
            self.tutti.gather(send, whole, root)
        if is_here:
            _store(fold_pairs(op, send.dtype, raw, self.size), result)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> None:
        """In place the result is in recvbuf's first block, as in MPI."""
        if sendbuf is not IN_PLACE:
            send = buffer_at(sendbuf, self.size)
            call_op = library_op("Reduce_scatter_block", op, send, sendbuf, recvbuf)
            self.tutti.reduce_scatter(send, buffer_at(recvbuf), call_op)
            return
        whole = buffer_at(recvbuf, self.size)
        _check_host("Reduce_scatter_block in place", whole)
        own = bytearray(size_in_bytes(whole) // self.size)
        block = buffer_of(own)
        if whole is not None:
            block.dtype, block.count = whole.dtype, len(own) // whole.dtype.bytes
        self.tutti.reduce_scatter(whole, block, library_op("Reduce_scatter_block", op, whole, recvbuf))
        _store(own, whole)

    def Ireduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> Request:
        if sendbuf is IN_PLACE:
            raise UnsupportedError("Ireduce_scatter_block in place: pass two buffers")
        send = buffer_at(sendbuf, self.size)
        call_op = library_op("Ireduce_scatter_block", op, send, sendbuf, recvbuf)
        return Request(self.tutti.start.reduce_scatter(send, buffer_at(recvbuf), call_op))

    def Reduce_scatter(self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int], op: Any = SUM) -> None:
        send, recv, counts, call_op = self._of_reduce_scatter(sendbuf, recvbuf, recvcounts, op)
        self.tutti.reduce_scatterv(send, recv, counts, op=call_op)

    def Ireduce_scatter(self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int], op: Any = SUM) -> Request:
        send, recv, counts, call_op = self._of_reduce_scatter(sendbuf, recvbuf, recvcounts, op)
        return Request(self.tutti.start.reduce_scatterv(send, recv, counts, op=call_op))

    def _of_reduce_scatter(self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int], op: Any) -> Tuple[Any, ...]:
        if sendbuf is IN_PLACE:
            raise UnsupportedError("Reduce_scatter in place: pass two buffers, or use tutti's reduce_scatterv")
        send = buffer_at(sendbuf)
        return send, buffer_at(recvbuf), numbers_of(recvcounts), library_op("Reduce_scatter", op, send, sendbuf, recvbuf)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        self.tutti.all_gather(buffer_at(sendbuf), buffer_at(recvbuf, self.size))

    def Iallgather(self, sendbuf: Any, recvbuf: Any) -> Request:
        return Request(self.tutti.start.all_gather(buffer_at(sendbuf), buffer_at(recvbuf, self.size)))

    def _at_root(self, memory: Any, root: int) -> Optional[Buffer]:
        """A block for each rank; what other ranks pass is not looked at."""
        return buffer_at(memory, self.size) if self.rank == root else None

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        self.tutti.gather(buffer_at(sendbuf), self._at_root(recvbuf, root), root)

    def Igather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        return Request(self.tutti.start.gather(buffer_at(sendbuf), self._at_root(recvbuf, root), root))

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        self.tutti.scatter(self._at_root(sendbuf, root), buffer_at(recvbuf), root)

    def Iscatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        return Request(self.tutti.start.scatter(self._at_root(sendbuf, root), buffer_at(recvbuf), root))

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        self.tutti.all_to_all(buffer_at(sendbuf, self.size), buffer_at(recvbuf, self.size))

    def Ialltoall(self, sendbuf: Any, recvbuf: Any) -> Request:
        return Request(self.tutti.start.all_to_all(buffer_at(sendbuf, self.size), buffer_at(recvbuf, self.size)))

    # ---- with counts

    def _vector(self, what: Any) -> Vector:
        return vector_of(what, self.size)

    def Allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        recv = self._vector(recvbuf)
        self.tutti.all_gatherv(buffer_at(sendbuf), *recv)

    def Iallgatherv(self, sendbuf: Any, recvbuf: Any) -> Request:
        recv = self._vector(recvbuf)
        return Request(self.tutti.start.all_gatherv(buffer_at(sendbuf), *recv))

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        send, recv = buffer_at(sendbuf), self._vector(recvbuf if self.rank == root else None)
        own = recv.counts[self.rank] if send is None else send.count
        counts = array.array("q", bytes(8 * self.size))
        self.tutti.all_gather(array.array("q", [own]), counts)
        self.tutti.gatherv(send, recv.buffer, counts, recv.displs, root)

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        send, recv = self._vector(sendbuf if self.rank == root else None), buffer_at(recvbuf)
        counts = array.array("q", send.counts)
        self.tutti.broadcast(counts, root)
        self.tutti.scatterv(send.buffer, recv, counts, send.displs, root)

    def Alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        self.tutti.all_to_allv(*self._of_alltoallv(sendbuf, recvbuf))

    def Ialltoallv(self, sendbuf: Any, recvbuf: Any) -> Request:
        return Request(self.tutti.start.all_to_allv(*self._of_alltoallv(sendbuf, recvbuf)))

    def _of_alltoallv(self, sendbuf: Any, recvbuf: Any) -> Tuple[Any, ...]:
        recv = self._vector(recvbuf)
        send = recv if sendbuf is IN_PLACE else self._vector(sendbuf)
        buffer = None if sendbuf is IN_PLACE else send.buffer
        return buffer, send.counts, recv.buffer, recv.counts, send.displs, recv.displs

    # ---- messages; with PROC_NULL there is none

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        if dest != PROC_NULL:
            self.tutti.send(buffer_at(buf), dest, tag)

    def Recv(self, buf: Any, source: int = ANY_SOURCE, tag: int = 0, status: Optional[Status] = None) -> None:
        if source == PROC_NULL:
            return RECEIVED_NOTHING._tell(status)
        buffer = buffer_at(buf)
        came_from = self.tutti.recv(buffer, source, _tag(tag))
        if status is not None:
            status._set(came_from, tag, size_in_bytes(buffer))

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        return Request(None if dest == PROC_NULL else self.tutti.start.send(buffer_at(buf), dest, tag), tag)

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = 0) -> Request:
        if source == PROC_NULL:
            return Request(None, source=PROC_NULL)
        buffer = buffer_at(buf)
        return Request(self.tutti.start.recv(buffer, source, _tag(tag)), tag, size_in_bytes(buffer))

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = 0,
        status: Optional[Status] = None,
    ) -> None:
        """Both start together: where one is refused, the other has not begun."""
        if source == PROC_NULL:
            self.Send(sendbuf, dest, sendtag)
            return RECEIVED_NOTHING._tell(status)
        buffer, came_from = buffer_at(recvbuf), ctypes.c_int(ANY_SOURCE)
        with group():
            self.tutti._recv(buffer, source, _tag(recvtag), {}, came_from)
            self.Send(sendbuf, dest, sendtag)
        if status is not None:
            status._set(came_from.value, recvtag, size_in_bytes(buffer))

    def Sendrecv_replace(
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = ANY_SOURCE,
        recvtag: int = 0,
        status: Optional[Status] = None,
    ) -> None:
        recv = buffer_at(buf)
        _check_host("Sendrecv_replace", recv)
        copy = bytearray(ctypes.string_at(recv.address, size_in_bytes(recv)) if recv is not None and recv.address else b"")
        send = buffer_of(copy)
        if recv is not None:
            send.dtype, send.count = recv.dtype, recv.count
        self.Sendrecv(send, dest, sendtag, recv, source, recvtag, status)

    barrier = Barrier

    # ---- communicators

    def Split(self, color: int = 0, key: int = 0) -> Optional["Comm"]:
        """color UNDEFINED: None."""
        child = self.tutti.split(color, key)
        return None if child is None else Comm(child)

    def Split_type(self, split_type: int, key: int = 0) -> Optional["Comm"]:
        """COMM_TYPE_SHARED: of the ranks of this node; UNDEFINED: None."""
        if split_type not in (COMM_TYPE_SHARED, UNDEFINED):
            raise UnsupportedError(f"Split_type of {split_type}: COMM_TYPE_SHARED and UNDEFINED are there")
        return self.Split(self.tutti.node_rank if split_type == COMM_TYPE_SHARED else UNDEFINED, key)

    def Dup(self) -> "Comm":
        return Comm(self.tutti.dup())

    Clone = Dup

    def Free(self) -> None:
        if self._comm is not None:
            self._comm.destroy()
            self._comm = self._join = None

    Disconnect = Free

    def Abort(self, errorcode: int = 0) -> None:
        """Ends this process with errorcode; the other ranks hear of it."""
        self.tutti.abort()
        raise SystemExit(errorcode)


COMM_WORLD = Comm(None, _communicator.init)
COMM_SELF = Comm(None, lambda: _communicator.init(world_size=1))
COMM_NULL = None
COMM_TYPE_SHARED = 1


def Finalize() -> None:
    """Leaves COMM_WORLD. Not needed: the end of the program does it."""
    COMM_WORLD.Free()


def Is_initialized() -> bool:
    return COMM_WORLD._comm is not None


def Is_finalized() -> bool:
    return COMM_WORLD._join is None


def Get_processor_name() -> str:
    return socket.gethostname()


Wtime = time.perf_counter
Intracomm = Comm
