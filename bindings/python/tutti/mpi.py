"""mpi4py's spelling of Tutti's calls, for programs that were written for it: from tutti import mpi as MPI.

Methods with a capital letter take buffers: an array; [array, count], [array, count, displacement] and
[array, (count, displacement)]; where ranks have counts of their own each number may be a list of these. A type may stand
behind all of them. IN_PLACE stands for the buffer of this side. Methods with a small letter take objects
(_mpi_objects.py). What differs from MPI:
    COMM_WORLD joins in its first call, by the launcher's environment
    a message has exactly as many elements as the buffer of its recv
    a recv names its tag, 0 by default: ANY_TAG is an UnsupportedError
    errors are exceptions of Tutti, and a rank that dies is one on all others
Gatherv and Scatterv make a small call before, since Tutti's ranks all know the counts.
"""

import array
import ctypes
import socket
import struct
import time
from operator import index
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _communicator, _dtypes
from ._buffers import Buffer, buffer_of
from ._checks import block_at, block_count
from ._groups import group
from ._mpi_objects import ObjectCalls
from ._mpi_requests import ANY_SOURCE, ANY_TAG, BYTE, PROC_NULL, RECEIVED_NOTHING, REQUEST_NULL, UNDEFINED, Request, Status
from ._ops import BAND, BOR, BXOR, MAX, MIN, PROD, SUM, Op
from .errors import Error, InvalidError, UnsupportedError

Exception = Error  # mpi4py's name

UNSIGNED_CHAR = UINT8_T = BYTE
CHAR = SIGNED_CHAR = INT8_T = _dtypes.BY_NAME["int8"]
SHORT = INT16_T = _dtypes.BY_NAME["int16"]
UNSIGNED_SHORT = UINT16_T = _dtypes.BY_NAME["uint16"]
INT = INT32_T = _dtypes.BY_NAME["int32"]
UNSIGNED = UINT32_T = _dtypes.BY_NAME["uint32"]
LONG = LONG_LONG = INT64_T = _dtypes.BY_NAME["int64"]
UNSIGNED_LONG = UNSIGNED_LONG_LONG = UINT64_T = _dtypes.BY_NAME["uint64"]
FLOAT, DOUBLE = _dtypes.BY_NAME["float32"], _dtypes.BY_NAME["float64"]
COMPLEX = C_FLOAT_COMPLEX = _dtypes.COMPLEX64
DOUBLE_COMPLEX = C_DOUBLE_COMPLEX = _dtypes.COMPLEX128
BOOL = C_BOOL = _dtypes.BOOL


class _InPlace:
    def __repr__(self) -> str:
        return "IN_PLACE"


IN_PLACE = _InPlace()


class _Vector(NamedTuple):
    """A block for each rank. buffer is None for IN_PLACE and None; displs is None where the blocks follow one another."""

    buffer: Optional[Buffer]
    counts: List[int]
    displs: Optional[List[int]] = None


def _type(x: Union[_dtypes.DType, str]) -> _dtypes.DType:
    """FLOAT, or "f", or "float32"."""
    letter = _dtypes.of_format(x, struct.calcsize(x)) if isinstance(x, str) and len(x) == 1 and x in "?bBhHiIlLqQefd" else None
    return letter or _dtypes.of_name(x)


def _is_number(x: Any) -> bool:
    """Also one of NumPy's, but not its arrays, which have __index__ too."""
    return hasattr(x, "__index__") and not hasattr(x, "__len__")


def _numbers(x: Any) -> List[int]:
    return list(map(index, x))


def _parts(what: Any) -> Tuple[Buffer, Any, Any]:
    """The buffer, and the counts and the displacements that are written behind it, or None."""
    if not isinstance(what, (list, tuple)):
        return buffer_of(what), None, None
    memory, *rest = what or (None,)
    dtype = _type(rest.pop()) if rest and isinstance(rest[-1], (_dtypes.DType, str)) else None
    buffer = buffer_of(memory, dtype)
    if len(rest) > 2:
        raise InvalidError(f"a buffer of {len(what)} parts: it is [array, counts, displacements, type] at most")
    return (buffer, *rest, *(2 - len(rest)) * (None,))


def _spec(what: Any, blocks: int = 1) -> Optional[Buffer]:
    """None for IN_PLACE and None. blocks: a count is that of each of them."""
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
            f"the buffer has {buffer.count} elements, and {blocks} times {count} are asked for, from element {first} on"
        )
    buffer.address, buffer.count = block_at(buffer, first), needed
    return buffer


def _bytes_of(buffer: Optional[Buffer]) -> int:
    return buffer.count * buffer.dtype.bytes if buffer else 0


def _tag(tag: int) -> int:
    if tag == ANY_TAG:
        raise UnsupportedError("ANY_TAG: a recv of Tutti names its tag, which is 0 where none is given")
    return tag


class Comm(ObjectCalls):
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

    # ---- collectives: Name, which returns when its result is there, and Iname, which gives a Request

    def Barrier(self) -> None:
        self.tutti.barrier()

    def Ibarrier(self) -> Request:
        return Request(self.tutti.start.barrier())

    def Bcast(self, buf: Any, root: int = 0) -> None:
        self.tutti.broadcast(_spec(buf), root)

    def Ibcast(self, buf: Any, root: int = 0) -> Request:
        return Request(self.tutti.start.broadcast(_spec(buf), root))

    @staticmethod
    def _sides(sendbuf: Any, recvbuf: Any) -> Tuple[Optional[Buffer], Optional[Buffer]]:
        """In place the one buffer is first, and the second None."""
        if sendbuf is IN_PLACE:
            return _spec(recvbuf), None
        send, recv = _spec(sendbuf), _spec(recvbuf)
        if recv is None:  # and without it Tutti's calls are in place
            raise InvalidError(f"recvbuf is {recvbuf}: pass a buffer, and IN_PLACE as sendbuf for a result in place")
        return send, recv

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        self.tutti.all_reduce(*self._sides(sendbuf, recvbuf), op=op)

    def Iallreduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Request:
        return Request(self.tutti.start.all_reduce(*self._sides(sendbuf, recvbuf), op=op))

    def _of_reduce(self, sendbuf: Any, recvbuf: Any, root: int) -> Tuple[Optional[Buffer], Optional[Buffer]]:
        is_used = self.rank == root or sendbuf is IN_PLACE
        return self._sides(sendbuf, recvbuf) if is_used else (_spec(sendbuf), None)

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM, root: int = 0) -> None:
        self.tutti.reduce(*self._of_reduce(sendbuf, recvbuf, root), op=op, root=root)

    def Ireduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM, root: int = 0) -> Request:
        return Request(self.tutti.start.reduce(*self._of_reduce(sendbuf, recvbuf, root), op=op, root=root))

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """In place the result is in recvbuf's first block, as in MPI."""
        if sendbuf is not IN_PLACE:
            self.tutti.reduce_scatter(_spec(sendbuf, self.size), _spec(recvbuf), op)
            return
        whole = _spec(recvbuf, self.size)
        own = bytearray(_bytes_of(whole) // self.size)
        self.tutti.reduce_scatter(whole, buffer_of(own, whole.dtype if whole else None), op)
        if whole is not None and whole.address:
            ctypes.memmove(whole.address, (ctypes.c_char * len(own)).from_buffer(own), len(own))

    def Reduce_scatter(self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int], op: Op = SUM) -> None:
        if sendbuf is IN_PLACE:
            raise UnsupportedError("Reduce_scatter in place: pass two buffers, or use tutti's reduce_scatterv")
        self.tutti.reduce_scatterv(_spec(sendbuf), _spec(recvbuf), _numbers(recvcounts), op=op)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        self.tutti.all_gather(_spec(sendbuf), _spec(recvbuf, self.size))

    def Iallgather(self, sendbuf: Any, recvbuf: Any) -> Request:
        return Request(self.tutti.start.all_gather(_spec(sendbuf), _spec(recvbuf, self.size)))

    def _at_root(self, memory: Any, root: int) -> Optional[Buffer]:
        """A block for each rank; what other ranks pass is not looked at."""
        return _spec(memory, self.size) if self.rank == root else None

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        self.tutti.gather(_spec(sendbuf), self._at_root(recvbuf, root), root)

    def Igather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        return Request(self.tutti.start.gather(_spec(sendbuf), self._at_root(recvbuf, root), root))

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        self.tutti.scatter(self._at_root(sendbuf, root), _spec(recvbuf), root)

    def Iscatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        return Request(self.tutti.start.scatter(self._at_root(sendbuf, root), _spec(recvbuf), root))

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        self.tutti.all_to_all(_spec(sendbuf, self.size), _spec(recvbuf, self.size))

    def Ialltoall(self, sendbuf: Any, recvbuf: Any) -> Request:
        return Request(self.tutti.start.all_to_all(_spec(sendbuf, self.size), _spec(recvbuf, self.size)))

    # ---- with counts

    def _vector(self, what: Any) -> _Vector:
        """A single count is that of each block; without counts these are equal parts."""
        if what is None or what is IN_PLACE:
            return _Vector(None, [0] * self.size)
        buffer, counts, displs = _parts(what)
        if isinstance(counts, (list, tuple)) and len(counts) == 2 and displs is None and not _is_number(counts[0]):
            counts, displs = counts
        if counts is None:
            counts = block_count("without counts", "the buffer", buffer, self.size)
        each = [index(counts)] * self.size if _is_number(counts) else _numbers(counts)
        return _Vector(buffer, each, None if displs is None else _numbers(displs))

    def Allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        recv = self._vector(recvbuf)
        self.tutti.all_gatherv(_spec(sendbuf), *recv)

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        send, recv = _spec(sendbuf), self._vector(recvbuf if self.rank == root else None)
        own = recv.counts[self.rank] if send is None else send.count
        counts = array.array("q", bytes(8 * self.size))
        self.tutti.all_gather(array.array("q", [own]), counts)
        self.tutti.gatherv(send, recv.buffer, counts, recv.displs, root)

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        send, recv = self._vector(sendbuf if self.rank == root else None), _spec(recvbuf)
        counts = array.array("q", send.counts)
        self.tutti.broadcast(counts, root)
        self.tutti.scatterv(send.buffer, recv, counts, send.displs, root)

    def Alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        recv = self._vector(recvbuf)
        send = recv if sendbuf is IN_PLACE else self._vector(sendbuf)
        buffer = None if sendbuf is IN_PLACE else send.buffer
        self.tutti.all_to_allv(buffer, send.counts, recv.buffer, recv.counts, send.displs, recv.displs)

    # ---- messages; with PROC_NULL there is none

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        if dest != PROC_NULL:
            self.tutti.send(_spec(buf), dest, tag)

    def Recv(self, buf: Any, source: int = ANY_SOURCE, tag: int = 0, status: Optional[Status] = None) -> None:
        if source == PROC_NULL:
            return RECEIVED_NOTHING._tell(status)
        buffer = _spec(buf)
        came_from = self.tutti.recv(buffer, source, _tag(tag))
        if status is not None:
            status._set(came_from, tag, _bytes_of(buffer))

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        return Request(None if dest == PROC_NULL else self.tutti.start.send(_spec(buf), dest, tag), tag)

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = 0) -> Request:
        if source == PROC_NULL:
            return Request(None, source=PROC_NULL)
        buffer = _spec(buf)
        return Request(self.tutti.start.recv(buffer, source, _tag(tag)), tag, _bytes_of(buffer))

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
        buffer, came_from = _spec(recvbuf), ctypes.c_int(ANY_SOURCE)
        with group():
            self.tutti._recv(buffer, source, _tag(recvtag), {}, came_from)
            self.Send(sendbuf, dest, sendtag)
        if status is not None:
            status._set(came_from.value, recvtag, _bytes_of(buffer))

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
