"""mpi4py's calls of objects, which pickle takes apart: convenient, and many times slower than those of buffers.

What a job's ranks send is trusted, as the job's secret proves who they are. A message is two: its length comes first.
"""

import operator
from array import array
from functools import reduce
from pickle import dumps, loads
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

from . import _objects, _ops
from ._mpi_requests import ANY_SOURCE, PROC_NULL, Request, Status
from .errors import InvalidError, UnsupportedError

if TYPE_CHECKING:
    from ._communicator import Comm

_OF_OBJECTS: Dict[_ops.Op, Callable[[Any, Any], Any]] = {
    _ops.SUM: operator.add,
    _ops.PROD: operator.mul,
    _ops.MIN: min,
    _ops.MAX: max,
    _ops.BAND: operator.and_,
    _ops.BOR: operator.or_,
    _ops.BXOR: operator.xor,
}


def _function(op: _ops.Op) -> Callable[[Any, Any], Any]:
    if op not in _OF_OBJECTS:
        raise UnsupportedError(f"{op!r} of objects: SUM, PROD, MIN, MAX, BAND, BOR and BXOR are there; or reduce buffers")
    return _OF_OBJECTS[op]


class ObjectCalls:
    """Of mpi.Comm, whose calls of buffers these use."""

    rank: property
    size: property
    Isend: Callable[..., Request]
    Recv: Callable[..., None]

    @property
    def tutti(self) -> "Comm":
        raise NotImplementedError

    def bcast(self, obj: Any, root: int = 0) -> Any:
        return self.tutti.broadcast_object(obj, root)

    def allgather(self, sendobj: Any) -> List[Any]:
        return self.tutti.all_gather_object(sendobj)

    def _check_root(self, call: str, root: int) -> None:
        if not 0 <= root < self.size:
            raise InvalidError(f"{call}: root is {root}, and the ranks are 0 to {self.size - 1}")

    def gather(self, sendobj: Any, root: int = 0) -> Optional[List[Any]]:
        self._check_root("gather", root)
        found: List[Any] = self.allgather(sendobj)
        return found if self.rank == root else None

    def scatter(self, sendobj: Optional[Sequence[Any]], root: int = 0) -> Any:
        """sendobj, of root: as many objects as there are ranks."""
        parts: List[bytes] = []
        if self.rank == root:
            parts = [dumps(value) for value in sendobj or ()]
            if len(parts) != self.size:
                raise InvalidError(f"scatter: {len(parts)} objects for {self.size} ranks")
        return loads(_objects.scatter(self.tutti, parts, root))

    def allreduce(self, sendobj: Any, op: _ops.Op = _ops.SUM) -> Any:
        """In the order of ranks, so that all have the same."""
        function = _function(op)
        return reduce(function, self.allgather(sendobj))

    def reduce(self, sendobj: Any, op: _ops.Op = _ops.SUM, root: int = 0) -> Any:
        self._check_root("reduce", root)
        found = self.allreduce(sendobj, op)
        return found if self.rank == root else None

    # ---- messages; with PROC_NULL there is none, and None is received

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        self.sendrecv(obj, dest, tag, source=PROC_NULL)

    def recv(self, buf: None = None, source: int = ANY_SOURCE, tag: int = 0, status: Optional[Status] = None) -> Any:
        """buf is not used."""
        return self.sendrecv(None, PROC_NULL, 0, buf, source, tag, status)

    def sendrecv(
        self,
        sendobj: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: None = None,
        source: int = ANY_SOURCE,
        recvtag: int = 0,
        status: Optional[Status] = None,
    ) -> Any:
        """recvbuf is not used."""
        _objects.check_no_group("a message")
        status = status or Status()
        data, length = dumps(sendobj), array("q", [0])
        parts: Tuple[Any, ...] = array("q", [len(data)]), data
        # The peer may receive all before it sends: nothing of the send waits for the recv.
        sends = [self.Isend(part, dest, sendtag) for part in parts]
        self.Recv(length, source, recvtag, status)
        received = bytearray(length[0])
        if received:
            self.Recv(received, status.Get_source(), recvtag, status)
        Request.Waitall(sends)
        return loads(received) if received else None
