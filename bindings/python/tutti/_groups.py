"""Groups: calls that start together and are waited for as one."""

import contextlib
import threading
import weakref
from ctypes import addressof, byref, c_void_p
from functools import partial
from typing import Any, Callable, List, Optional, Set, Tuple

from . import _ends
from ._buffers import stream_of
from ._flights import Flight, State, end_here, failure_of, wait_here
from ._library import OK, Call, lib
from ._works import Work
from .errors import InvalidError, check


class _Local(threading.local):
    """group: the innermost that is open on this thread. Its with statement holds it: where a signal's handler has raised before
    __exit__ could end it, there is none."""

    group: "Optional[weakref.ReferenceType[group]]" = None


_local = _Local()


class group:
    """with tutti.group(): the calls of this thread in the block, of several communicators too, start together at its end.

    The end waits, and raises the first error; with wait=False it returns at once, and .work is the Work of all of them.
    A block that raises starts nothing. The buffers are the library's until the end has waited, or the work is over.
    At most 16,384 calls. timeout is in seconds, for calls that have none of their own; stream: the address of a CUDA stream;
    done, with wait=False: as of a call of Comm.start.
    """

    def __init__(
        self,
        wait: bool = True,
        timeout: Optional[float] = None,
        stream: Optional[int] = None,
        done: Optional[Callable[[Work], Any]] = None,
    ):
        if wait and done is not None:
            raise InvalidError("a group that waits has no work, and so no done: use group(wait=False, done=...)")
        self._waits, self._timeout_ms, self._stream = wait, timeout_ms(timeout), stream
        self._done, self._fd = done, None if wait else _ends.fd_of(done)
        self.work: Optional[Work] = None
        self._keep: List[Any] = []
        self._ops: Set[Any] = set()
        self._states: List[State] = []
        self._outer: Optional[group] = None

    def __enter__(self) -> "group":
        outer = around = current()
        while around is not None:
            if around is self:
                raise InvalidError("this group is open already: make another one")
            around = around._outer
        if outer is None:
            cancel()
        check(lib.tutti_group_begin())
        self._outer = outer
        _local.group = weakref.ref(self)
        return self

    def add(self, state: State, keep: Tuple[Any, ...], ops: Any) -> None:
        """Of a call that the library has collected. keep: its buffers, and what else it uses, such as its label."""
        whole = self
        while whole._outer is not None:
            whole = whole._outer
        whole._keep.extend(keep)
        whole._ops.update(ops)
        if state not in whole._states:
            whole._states.append(state)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        _local.group = None if self._outer is None else weakref.ref(self._outer)
        try:
            self._leave(error)
        finally:
            self._keep, self._ops, self._states = [], set(), []

    def _leave(self, error: Any) -> None:
        if error is not None and self._outer is None:
            cancel()
        elif error is not None:
            _spoil()
            lib.tutti_group_end(None)
        elif self._outer is not None:
            check(lib.tutti_group_end(None))
        else:
            self._end()

    def _end(self) -> None:
        states, cell = tuple(self._states), c_void_p()
        call = Call(addressof(cell), None, self._timeout_ms)
        if self._fd is not None:
            call.done, call.done_arg = _ends.DONE, self._fd
        with contextlib.ExitStack() as entered:
            try:
                self._prepare(call, entered)
                check(lib.tutti_group_end(byref(call)))
                if states and not cell.value:
                    cancel()
                    raise InvalidError("the group has started nothing: a signal's handler has ended a group in it")
                if not self._waits:
                    self.work = self._work(cell, states)
                    return
                status = wait_here(states, cell) if cell.value else OK
            except BaseException:
                if cell.value and self.work is None:
                    end_here(states, cell)
                raise
        failure = failure_of(self._ops, states)
        if failure is not None:
            raise failure
        check(status)

    def _prepare(self, call: Call, entered: contextlib.ExitStack) -> None:
        try:
            call.stream = self._stream or stream_of("a group", tuple(self._keep))
            for state in self._states:
                entered.enter_context(state)
        except BaseException:  # one was destroyed after its call was collected
            cancel()
            raise

    def _work(self, cell: c_void_p, states: Tuple[State, ...]) -> Work:
        flight = Flight("a group", cell, states, self._keep, tuple(self._ops), fd=self._fd)
        if not cell.value:  # it had no calls
            flight.end(OK)
        work = Work(flight)
        if self._done is not None:
            _ends.of_done().call(flight, partial(self._done, work))
        return work


def _spoil() -> None:
    """A group with an INVALID member, as a barrier of no communicator, starts nothing."""
    lib.tutti_barrier(None, None)


def cancel() -> bool:
    """Ends all that is open in the library on this thread, and starts nothing. An exception of a signal's handler, between the
    library and the with statement, may have left a group open. True: there was one."""
    found = False
    while lib.tutti_group_refuse(None) != OK:
        found = True
        _spoil()
        lib.tutti_group_end(None)
    return found


def current() -> Optional[group]:
    return None if _local.group is None else _local.group()


def is_open() -> bool:
    return current() is not None


def timeout_ms(seconds: Optional[float]) -> int:
    """0: the communicator's own."""
    if seconds is None:
        return 0
    if not 0 < seconds <= 2**31 / 1000 - 1:
        raise InvalidError(f"a timeout of {seconds!r} s: it is more than 0 and at most 24 days")
    return max(1, round(seconds * 1000))
