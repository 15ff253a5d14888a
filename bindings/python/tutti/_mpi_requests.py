"""mpi4py's Request and Status, over a Work."""

from typing import Any, List, Optional, Sequence

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

    wait, test = Wait, Test


REQUEST_NULL = Request(None)
RECEIVED_NOTHING = Request(None, source=PROC_NULL)
