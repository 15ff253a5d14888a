"""mpi4py's calls of objects, which pickle takes apart: convenient, and many times slower than those of buffers.

What a job's ranks send is trusted, as the job's secret proves who they are. A message is two: first, with the user's tag,
the length of the data and the tag that these have, one of their own. So receives that are under way at a time may go on in
any order. Tags of data are those from 2**30 on.
"""

from array import array
from functools import reduce
from itertools import chain, count
from pickle import dumps
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple

from . import _objects
from ._communicator import Comm
from ._mpi_ops import SUM, function_of
from ._mpi_requests import ANY_SOURCE, ObjectReceive, ObjectSend, Request, Status
from .errors import Error, InvalidError

_FIRST_OF_DATA = 1 << 30
_messages = count()


def _prefixes(function: Callable[[Any, Any], Any], found: List[Any]) -> Iterator[Any]:
    """Like itertools.accumulate, which would end early if the function raised StopIteration."""
    result = None
    for i, value in enumerate(found):
        result = function(result, value) if i else value
        yield result


class ObjectCalls:
    """Of mpi.Comm, whose calls of buffers these use."""

    rank: property
    size: property
    Isend: Callable[..., Request]
    Irecv: Callable[..., Request]

    @property
    def tutti(self) -> Comm:
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

        def parts() -> List[Any]:
            values = [] if sendobj is None else list(sendobj)
            if len(values) != self.size:
                raise InvalidError(f"scatter: {len(values)} objects for {self.size} ranks")
            return values

        data, error = self._sent_by(root, parts)  # and does not wait until all have unpickled theirs
        if error is not None:
            raise error
        return _objects.unpickled("scatter", data, root)

    def allreduce(self, sendobj: Any, op: Any = SUM) -> Any:
        """op: also a function of two objects; it runs on rank 0 alone. Reduces in the order of ranks, so all get the same."""
        function, is_own = function_of("allreduce", op)
        found = self.allgather(sendobj)
        if not is_own:
            return reduce(function, found)
        return self._from_one("allreduce", 0, lambda: [reduce(function, found)], to_all=True)

    def reduce(self, sendobj: Any, op: Any = SUM, root: int = 0) -> Any:
        """op: also a function of two objects, which runs on root."""
        self._check_root("reduce", root)
        function, is_own = function_of("reduce", op)
        found = self.allgather(sendobj)
        if not is_own:
            return reduce(function, found) if self.rank == root else None
        return self._from_one("reduce", root, lambda: self._at(root, reduce(function, found)))

    def scan(self, sendobj: Any, op: Any = SUM) -> Any:
        """Of the ranks up to this one. op: also a function of two objects, which runs on rank 0."""
        function, is_own = function_of("scan", op)
        found = self.allgather(sendobj)
        if not is_own:
            return reduce(function, found[: self.rank + 1])
        return self._from_one("scan", 0, lambda: _prefixes(function, found))

    def exscan(self, sendobj: Any, op: Any = SUM) -> Any:
        """Of the ranks before this one; None on the first. op: also a function of two objects, which runs on rank 0."""
        function, is_own = function_of("exscan", op)
        found = self.allgather(sendobj)
        if not is_own:
            return reduce(function, found[: self.rank]) if self.rank else None
        return self._from_one("exscan", 0, lambda: chain([None], _prefixes(function, found[:-1])))

    def _at(self, root: int, value: Any) -> List[Any]:
        return [value if rank == root else None for rank in range(self.size)]

    def _from_one(self, call: str, root: int, results: Callable[[], Iterable[Any]], to_all: bool = False) -> Any:
        """Calls results() on root alone; it yields one result per rank, or one to_all. So all ranks get the results of one
        run, and if it raises, or a rank cannot unpickle its result, all raise: that rank the same error, even if the
        communicator fails as it tells the others."""
        data, error = self._sent_by(root, results, to_all)
        return _objects.read_together(self.tutti, call, error, lambda: _objects.unpickled(call, data, root))

    def _sent_by(
        self, root: int, results: Callable[[], Iterable[Any]], to_all: bool = False
    ) -> Tuple[bytearray, Optional[Exception]]:
        """What root has for this rank, and on root the error of results(), which the others find in what they get."""
        error: Optional[Exception] = None
        outcomes: List[bytes] = []
        if self.rank == root:
            try:
                outcomes = [dumps(result) for result in results()]  # at once: functions may change what they return
            except Exception as raised:
                error = raised
                outcomes = [_objects.refusal_of(raised)] * (1 if to_all else self.size)
            except BaseException:
                self.tutti.abort()
                raise
        try:
            if to_all:
                return _objects.broadcast_bytes(self.tutti, b"".join(outcomes), root), error
            return _objects.scatter(self.tutti, outcomes, root), error
        except Error as unsent:
            if error is None:
                raise
            raise error from unsent

    def alltoall(self, sendobj: Sequence[Any]) -> List[Any]:
        """sendobj: an object for each rank."""
        return _objects.all_to_all(self.tutti, sendobj)

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
