"""Groups: calls that start together and are waited for as one."""

import threading
from ctypes import addressof, byref, c_void_p
from typing import Any, List, Optional, Set

from ._library import OK, Call, lib
from ._works import Flight, State, Work, failure_of, wait_here, end_here
from .errors import check, error_of

_local = threading.local()


class group:
    """with tutti.group(): the calls of this thread in the block, of several communicators too, start together at its end.

    The end waits, and raises the first error; with wait=False it returns at once, and .work is the Work of all of them.
    A block that raises starts nothing. The buffers are the library's until the end has waited, or the work is over.
    At most 16,384 calls. timeout is in seconds, for calls that have none of their own; stream: the address of a CUDA stream.
    """

    def __init__(self, wait: bool = True, timeout: Optional[float] = None, stream: Optional[int] = None):
        self._waits, self._timeout, self._stream = wait, timeout, stream
        self.work: Optional[Work] = None
        self._keep: List[Any] = []
        self._ops: Set[Any] = set()
        self._states: List[State] = []
        self._outer: Optional[group] = None

    def __enter__(self) -> "group":
        check(lib.tutti_group_begin())
        self._outer = getattr(_local, "group", None)
        _local.group = self
        return self

    def add(self, state: State, keep: Any, ops: Any) -> None:
        """Of a call that the library has collected: what it uses."""
        whole = self
        while whole._outer is not None:
            whole = whole._outer
        whole._keep.append(keep)
        whole._ops.update(ops)
        if state not in whole._states:
            whole._states.append(state)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        _local.group = self._outer
        if error is not None:
            lib.tutti_barrier(None, None)  # INVALID, and with a member that is the group starts nothing
            lib.tutti_group_end(None)
        elif self._outer is not None:
            check(lib.tutti_group_end(None))
        else:
            self._end()

    def _end(self) -> None:
        states, cell = tuple(self._states), c_void_p()
        call = Call(addressof(cell), self._stream, timeout_ms(self._timeout))
        try:
            status = lib.tutti_group_end(byref(call))
            if status != OK:
                raise error_of(status)
            if not self._waits:
                self.work = Work(Flight("a group", cell, states, self._keep, tuple(self._ops)))
                if not cell.value:  # no calls
                    self.work._flight._end(OK)
                return
        except BaseException:
            if cell.value and self.work is None and states:
                end_here(states, cell)
            raise
        if cell.value:
            status = wait_here(states, cell)
        failure = failure_of(self._ops, states)
        if failure is not None:
            raise failure
        if status != OK:
            raise error_of(status)
        self._keep, self._ops = [], set()


def current() -> Optional[group]:
    return getattr(_local, "group", None)


def is_open() -> bool:
    return current() is not None


def timeout_ms(seconds: Optional[float]) -> int:
    """0: the communicator's own."""
    from .errors import InvalidError

    if seconds is None:
        return 0
    if not 0 < seconds <= 2**31 / 1000 - 1:
        raise InvalidError(f"a timeout of {seconds!r} s: it is more than 0 and at most 24 days")
    return max(1, int(seconds * 1000))
