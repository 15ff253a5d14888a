"""mpi4py's Request and Status, over a Work."""

from array import array
from pickle import loads
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

from ._works import Work

ANY_SOURCE, ANY_TAG, PROC_NULL = -1, -1, -2


class Status:
    """Of a receive that is over."""

    def __init__(self) -> None:
        self.source, self.tag, self.error = ANY_SOURCE, 0, 0
        self._count = 0

    def Get_source(self) -> int:
        return self.source

    def Get_tag(self) -> int:
        return self.tag

    def Get_count(self, datatype: Any = None) -> int:
        """Elements: as many as the buffer has."""
        return self._count

    def _set(self, source: int, tag: int, count: int) -> None:
        self.source, self.tag, self._count = source, tag, count


class Request:
    """A call in flight: a Work, or None: nothing to wait for, and what a receive would have from source."""

    def __init__(self, work: Optional[Work], tag: int = 0, count: int = 0, source: int = ANY_SOURCE):
        self.work, self._tag, self._count, self._source = work, tag, count, source

    def Wait(self, status: Optional[Status] = None) -> bool:
        if self.work is not None:
            self.work.wait()
        self._tell(status)
        return True

    def Test(self, status: Optional[Status] = None) -> bool:
        if self.work is not None and not self.work.test():
            return False
        self._tell(status)
        return True

    def _tell(self, status: Optional[Status]) -> None:
        if status is None:
            return
        if self.work is None:
            status._set(self._source, ANY_TAG, 0)
        elif self.work._flight.source is not None:
            status._set(self.work.source, self._tag, self._count)

    def Cancel(self) -> None:
        """Of a receive that no message has met; Wait raises AbortedError then."""
        if self.work is not None:
            self.work.cancel()

    def Free(self) -> None:
        self.work = None

    @classmethod
    def Waitall(cls, requests: Sequence["Request"], statuses: Optional[List[Status]] = None) -> bool:
        for i, request in enumerate(requests):
            request.Wait(statuses[i] if statuses else None)
        return True

    @classmethod
    def Testall(cls, requests: Sequence["Request"], statuses: Optional[List[Status]] = None) -> bool:
        return all([request.Test(statuses[i] if statuses else None) for i, request in enumerate(requests)])

    def wait(self, status: Optional[Status] = None) -> Any:
        return self.Wait(status)

    def test(self, status: Optional[Status] = None) -> Union[bool, Tuple[bool, Any]]:
        return self.Test(status)

    @classmethod
    def waitall(cls, requests: Sequence["Request"], statuses: Optional[List[Status]] = None) -> List[Any]:
        return [request.wait(statuses[i] if statuses else None) for i, request in enumerate(requests)]


class ObjectSend(Request):
    def __init__(self, parts: List[Request]):
        super().__init__(parts[0].work)
        self._parts = parts

    def Wait(self, status: Optional[Status] = None) -> bool:
        return self.Waitall(self._parts)

    def Test(self, status: Optional[Status] = None) -> bool:
        return self.Testall(self._parts)

    def wait(self, status: Optional[Status] = None) -> None:
        self.Wait()

    def test(self, status: Optional[Status] = None) -> Tuple[bool, None]:
        return self.Test(), None


class ObjectReceive(Request):
    """First the length of the data and their tag, then these (_mpi_objects.py)."""

    def __init__(self, irecv: Callable[..., Request], source: int, tag: int):
        self._irecv, self._from = irecv, Status()
        self._what, self._data = array("q", [0, 0]), bytearray()
        self._first, self._rest = irecv(self._what, source, tag), None  # type: Request, Optional[Request]
        super().__init__(self._first.work)

    def _go_on(self) -> Request:
        """When the first part is there."""
        if self._rest is None:
            self._first._tell(self._from)
            length, tag = self._what
            self._data = bytearray(length)
            self._rest = self._irecv(self._data, self._from.source, tag) if length else RECEIVED_NOTHING
        return self._rest

    def _end(self, status: Optional[Status]) -> Any:
        if status is not None:
            status._set(self._from.source, self._from.tag, len(self._data))
        return loads(self._data) if self._data else None

    def Wait(self, status: Optional[Status] = None) -> bool:
        self.wait(status)
        return True

    def Test(self, status: Optional[Status] = None) -> bool:
        return self.test(status)[0]

    def wait(self, status: Optional[Status] = None) -> Any:
        self._first.Wait()
        self._go_on().Wait()
        return self._end(status)

    def test(self, status: Optional[Status] = None) -> Tuple[bool, Any]:
        if not (self._first.Test() and self._go_on().Test()):
            return False, None
        return True, self._end(status)


REQUEST_NULL = Request(None)
RECEIVED_NOTHING = Request(None, source=PROC_NULL)
