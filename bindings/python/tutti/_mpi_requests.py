"""mpi4py's Request and Status, over a Work."""

from __future__ import annotations

import threading
import time
from array import array
from contextlib import suppress
from pickle import loads
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Tuple

from ._dtypes import DType
from ._mpi_absent import Names
from ._mpi_types import BYTE
from ._works import Work
from .errors import Error

if TYPE_CHECKING:
    from typing import Sequence

    Requests = Sequence["Request"]
    Statuses = Optional[List["Status"]]

ANY_SOURCE, ANY_TAG, PROC_NULL, UNDEFINED = -1, -1, -2, -32766
_LOOK_S = 0.0001  # between looks for the first of several
_SLICE_S = 0.001  # of a wait with receives of objects that may go on


class Status(Names):
    """Of a receive that is over."""

    def __init__(self) -> None:
        self.source, self.tag, self.error = ANY_SOURCE, 0, 0
        self.count = 0  # bytes

    def Get_source(self) -> int:
        return self.source

    def Get_tag(self) -> int:
        return self.tag

    def Get_error(self) -> int:
        """0: what fails is raised."""
        return self.error

    def Get_count(self, datatype: DType = BYTE) -> int:
        """Bytes, or elements of datatype; UNDEFINED: the bytes are no whole number of these."""
        whole, rest = divmod(self.count, datatype.bytes)
        return UNDEFINED if rest else whole

    def _set(self, source: int, tag: int, count: int) -> None:
        self.source, self.tag, self.count = source, tag, count


class _Begun(threading.local):
    """The receives of objects that this thread has begun and whose data have not been asked for. It asks whenever it waits
    for a request: the sender waits for that, and this thread perhaps for the sender."""

    def __init__(self) -> None:
        self.receives: List[ObjectReceive] = []

    def go_on(self) -> None:
        for receive in tuple(self.receives):
            receive.advance()


_begun = _Begun()


def _is_over(work: Optional[Work]) -> bool:
    return work is None or work.test()


class Request(Names):
    """A call in flight: a Work, or None: nothing to wait for, and what a receive would have from source. count is in bytes.

    wait() and test() are Wait() and Test() with the object that was received; of buffers that is None.
    """

    def __init__(self, work: Optional[Work], tag: int = 0, count: int = 0, source: int = ANY_SOURCE):
        self.work, self._tag, self._count, self._source = work, tag, count, source
        self.is_active = True  # until it was found to be over: Waitany and Testany look at no others

    def Wait(self, status: Optional[Status] = None) -> bool:
        while _begun.receives and not _is_over(self.work):
            _begun.go_on()
            with suppress(TimeoutError):
                self.work.wait(_SLICE_S)  # type: ignore[union-attr]
        if self.work is not None:
            self.work.wait()
        self._tell(status)
        return True

    def Test(self, status: Optional[Status] = None) -> bool:
        _begun.go_on()
        if not _is_over(self.work):
            return False
        self._tell(status)
        return True

    def _tell(self, status: Optional[Status]) -> None:
        """When it is over."""
        self.is_active = False
        if status is None:
            return
        if self.work is None:
            status._set(self._source, ANY_TAG, 0)
        elif self.work._flight.source is not None:
            status._set(self.work.source, self._tag, self._count)

    def _object(self) -> Any:
        return None

    def Cancel(self) -> None:
        """Of a receive that no message has met; Wait raises AbortedError then."""
        if self.work is not None:
            self.work.cancel()

    def Free(self) -> None:
        self.work = None

    def wait(self, status: Optional[Status] = None) -> Any:
        self.Wait(status)
        return self._object()

    def test(self, status: Optional[Status] = None) -> Tuple[bool, Any]:
        return (True, self._object()) if self.Test(status) else (False, None)

    # ---- of several; an index is UNDEFINED where no request is active

    @classmethod
    def Waitall(cls, requests: Requests, statuses: Statuses = None) -> bool:
        for request, status in _pairs(requests, statuses):
            request.Wait(status)
        return True

    @classmethod
    def Testall(cls, requests: Requests, statuses: Statuses = None) -> bool:
        return all([request.Test(status) for request, status in _pairs(requests, statuses)])

    @classmethod
    def Waitany(cls, requests: Requests, status: Optional[Status] = None) -> int:
        """The index of one that is over."""
        index, is_over = cls.Testany(requests, status)
        while not is_over:
            time.sleep(_LOOK_S)
            index, is_over = cls.Testany(requests, status)
        return index

    @classmethod
    def Testany(cls, requests: Requests, status: Optional[Status] = None) -> Tuple[int, bool]:
        active = [i for i, request in enumerate(requests) if request.is_active]
        for i in active:
            if requests[i].Test(status):
                return i, True
        return UNDEFINED, not active

    @classmethod
    def Waitsome(cls, requests: Requests, statuses: Statuses = None) -> Optional[List[int]]:
        """Waits until at least one request is over; returns the indices of all that are, or None if none is active."""
        found = cls.Testsome(requests, statuses)
        while found == []:
            time.sleep(_LOOK_S)
            found = cls.Testsome(requests, statuses)
        return found

    @classmethod
    def Testsome(cls, requests: Requests, statuses: Statuses = None) -> Optional[List[int]]:
        active = [i for i, request in enumerate(requests) if request.is_active]
        of_each = {i: Status() for i in active}
        found = [i for i in active if requests[i].Test(of_each[i])]
        if statuses is not None:
            statuses[: len(found)] = [of_each[i] for i in found]
        return found if active else None

    @classmethod
    def waitall(cls, requests: Requests, statuses: Statuses = None) -> List[Any]:
        return [request.wait(status) for request, status in _pairs(requests, statuses)]

    @classmethod
    def testall(cls, requests: Requests, statuses: Statuses = None) -> Tuple[bool, Optional[List[Any]]]:
        if not cls.Testall(requests, statuses):
            return False, None
        return True, [request._object() for request in requests]

    @classmethod
    def waitany(cls, requests: Requests, status: Optional[Status] = None) -> Tuple[int, Any]:
        index = cls.Waitany(requests, status)
        return index, None if index == UNDEFINED else requests[index]._object()

    @classmethod
    def testany(cls, requests: Requests, status: Optional[Status] = None) -> Tuple[int, bool, Any]:
        index, is_over = cls.Testany(requests, status)
        return index, is_over, None if index == UNDEFINED else requests[index]._object()

    @classmethod
    def waitsome(cls, requests: Requests, statuses: Statuses = None) -> Tuple[Optional[List[int]], Optional[List[Any]]]:
        found = cls.Waitsome(requests, statuses)
        return found, None if found is None else [requests[i]._object() for i in found]

    @classmethod
    def testsome(cls, requests: Requests, statuses: Statuses = None) -> Tuple[Optional[List[int]], Optional[List[Any]]]:
        found = cls.Testsome(requests, statuses)
        return found, None if found is None else [requests[i]._object() for i in found]


def _pairs(requests: Requests, statuses: Statuses) -> List[Tuple[Request, Optional[Status]]]:
    if statuses is not None and len(statuses) < len(requests):
        statuses.extend(Status() for _ in requests[len(statuses) :])
    return list(zip(requests, statuses if statuses is not None else [None] * len(requests)))


class ObjectSend(Request):
    def __init__(self, parts: List[Request]):
        super().__init__(parts[0].work)
        self._parts = parts

    def Wait(self, status: Optional[Status] = None) -> bool:
        self.Waitall(self._parts)
        self.is_active = False
        return True

    def Test(self, status: Optional[Status] = None) -> bool:
        self.is_active = not self.Testall(self._parts)
        return not self.is_active


class ObjectReceive(Request):
    """First the length of the data and their tag, then these (_mpi_objects.py)."""

    def __init__(self, irecv: Callable[..., Request], source: int, tag: int):
        self._irecv, self._from = irecv, Status()
        self._what, self._data = array("q", [0, 0]), bytearray()
        self._first, self._rest = irecv(self._what, source, tag), None  # type: Request, Optional[Request]
        super().__init__(self._first.work)
        _begun.receives.append(self)

    def advance(self) -> None:
        """Asks for the data as soon as it is known how many they are. Never blocks."""
        try:
            if _is_over(self._first.work):
                self._go_on()
        except Error:  # its own wait raises it
            self._forget()

    def _forget(self) -> None:
        with suppress(ValueError):
            _begun.receives.remove(self)

    def _go_on(self) -> Request:
        """When the first part is there."""
        if self._rest is None:
            self._forget()
            self._first._tell(self._from)
            length, tag = self._what
            self._data = bytearray(length)
            self._rest = self._irecv(self._data, self._from.source, tag) if length else RECEIVED_NOTHING
        return self._rest

    def _tell(self, status: Optional[Status]) -> None:
        self.is_active = False
        if status is not None:
            status._set(self._from.source, self._from.tag, len(self._data))

    def _object(self) -> Any:
        return loads(self._data) if self._data else None

    def Wait(self, status: Optional[Status] = None) -> bool:
        self._forget()
        self._first.Wait()
        self._go_on().Wait()
        self._tell(status)
        return True

    def Test(self, status: Optional[Status] = None) -> bool:
        if not (self._first.Test() and self._go_on().Test()):
            return False
        self._tell(status)
        return True


REQUEST_NULL = Request(None)
REQUEST_NULL.is_active = False
RECEIVED_NOTHING = Request(None, source=PROC_NULL)
