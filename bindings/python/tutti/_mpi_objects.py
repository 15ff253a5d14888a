"""mpi4py's calls of objects, which pickle takes apart: convenient, and many times slower than those of buffers.

What a job's ranks send is trusted, as the job's secret proves who they are. A message is two: first, with the user's tag,
the length of the data and the tag that these have, one of their own. So receives that are under way at a time may go on in
any order. Tags of data are those from 2**30 on.
"""

import operator
from array import array
from functools import reduce
from itertools import count
from pickle import dumps, loads
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence

from . import _objects, _ops
from ._mpi_requests import ANY_SOURCE, ObjectReceive, ObjectSend, Request, Status
from .errors import Error, InvalidError, UnsupportedError

if TYPE_CHECKING:
    from ._communicator import Comm

_FIRST_OF_DATA = 1 << 30
_messages = count()

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
    Irecv: Callable[..., Request]

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
            parts = [dumps(value) for value in (() if sendobj is None else sendobj)]
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

    def scan(self, sendobj: Any, op: _ops.Op = _ops.SUM) -> Any:
        """Of the ranks up to this one."""
        function = _function(op)
        return reduce(function, self.allgather(sendobj)[: self.rank + 1])

    def exscan(self, sendobj: Any, op: _ops.Op = _ops.SUM) -> Any:
        """Of the ranks before this one; None on the first."""
        function = _function(op)
        before = self.allgather(sendobj)[: self.rank]
        return reduce(function, before) if before else None

    def alltoall(self, sendobj: Sequence[Any]) -> List[Any]:
        """sendobj: an object for each rank."""
        parts = [dumps(value) for value in sendobj]
        if len(parts) != self.size:
            raise InvalidError(f"alltoall: {len(parts)} objects for {self.size} ranks")
        return [loads(part) for part in _objects.all_to_all(self.tutti, parts)]

    # ---- messages; with PROC_NULL there is none, and None is received

    def isend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        """The request's wait() returns None."""
        _objects.check_no_group("a message")
        data = dumps(obj)
        own = _FIRST_OF_DATA + next(_messages) % _FIRST_OF_DATA
        return ObjectSend([self.Isend(array("q", [len(data), own]), dest, tag), self.Isend(data, dest, own)])

    def irecv(self, buf: None = None, source: int = ANY_SOURCE, tag: int = 0) -> Request:
        """buf is not used. The request's wait() returns the object, and test() whether it is there, and it."""
        _objects.check_no_group("a message")
        return ObjectReceive(self.Irecv, source, tag)

    def _complete(self, *requests: Request) -> None:
        """As blocking calls do: an exception meanwhile, as KeyboardInterrupt, aborts the communicator."""
        try:
            Request.Waitall(requests)
        except Error:
            raise
        except BaseException:
            self.tutti.abort()
            raise

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        self._complete(self.isend(obj, dest, tag))

    def recv(self, buf: None = None, source: int = ANY_SOURCE, tag: int = 0, status: Optional[Status] = None) -> Any:
        receive = self.irecv(buf, source, tag)
        self._complete(receive)
        return receive.wait(status)

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
        """recvbuf is not used. Neither side waits for the other."""
        send = self.isend(sendobj, dest, sendtag)  # first: where it fails no receive is left that takes the next message
        receive = self.irecv(recvbuf, source, recvtag)
        self._complete(receive, send)
        return receive.wait(status)
