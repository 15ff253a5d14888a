"""Calls in flight: their handles and the memory that the library uses until they are over."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from ctypes import byref, c_int, c_void_p
from threading import get_ident
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from ._library import IN_PROGRESS, OK, lib
from .errors import InvalidError, error_of

SLICE_MS = 50  # of a wait: so often a signal's handler gets its turn
_wait, _test, _release = lib.tutti_work_wait, lib.tutti_work_test, lib.tutti_work_release


class State:
    """What a communicator's objects share.

    active has the threads that are in a call of the library on it. A thread that destroys it sets is_closing, and then waits
    until no other one is active; these do it the other way round. So no thread is in a call while it is destroyed.
    (An exception of a signal's handler may leave its own thread in active; that one is not in a call when it destroys.)
    """

    __slots__ = ("handle", "pid", "flights", "has_dropped", "active", "is_closing")

    def __init__(self, handle: Optional[int]):
        self.handle, self.pid = handle, os.getpid()
        self.flights: Set[Flight] = set()
        self.has_dropped = self.is_closing = False
        self.active: Dict[int, None] = {}

    def __enter__(self) -> int:
        """The handle, which is there until the end of the block."""
        self.active[get_ident()] = None
        if self.handle is None or self.is_closing:
            self.leave()
            raise InvalidError("the communicator was destroyed")
        return self.handle

    def leave(self, *_: object) -> None:
        self.active.pop(get_ident(), None)

    __exit__ = leave

    def has_others(self) -> bool:
        """Whether another thread than this one is in a call."""
        return bool(set(self.active) - {get_ident()})

    def is_here(self) -> bool:
        """Not in a forked process, where the communicator is the parent's."""
        return self.handle is not None and self.pid == os.getpid()

    def abort(self) -> None:
        if self.is_here():
            lib.tutti_comm_abort(self.handle)

    def sweep(self) -> None:
        """Frees what dropped works have kept, as far as they are over."""
        self.has_dropped = False
        for flight in tuple(self.flights):
            if flight.is_dropped and not flight.look():
                self.has_dropped = True


class Flight:
    """A call in flight. keep: the buffers and tables, ops: the operations (Op.watch) that the library uses until it is over.

    fd: the eventfd that the library adds to then, or None. on_end: what is told of it, by the thread that sees it first.
    """

    __slots__ = (
        "name",
        "cell",
        "states",
        "keep",
        "ops",
        "source",
        "fd",
        "on_end",
        "lock",
        "is_over",
        "is_dropped",
        "error",
        "trace",
    )

    def __init__(
        self,
        name: str,
        cell: c_void_p,
        states: Tuple[State, ...],
        keep: Any,
        ops: Any = (),
        source: Optional[c_int] = None,
        fd: Optional[int] = None,
    ):
        self.fd = fd
        self.on_end: List[Callable[[], None]] = []
        self.name, self.cell, self.states, self.keep, self.ops, self.source = name, cell, states, keep, ops, source
        # One thread at a time uses the handle, which a wait frees. R: a signal's handler may take it again.
        self.lock = threading.RLock()
        self.is_over = self.is_dropped = False
        self.error: Optional[BaseException] = None
        self.trace: Optional[TracebackType] = None  # of error, from an operation's function
        for state in states:
            state.flights.add(self)

    def look(self, is_closing: bool = False) -> bool:
        """Whether it is over; never blocks. is_closing: this thread destroys the communicator, and the others let it."""
        if self.is_over or not self.lock.acquire(timeout=1 if is_closing else 0):
            return self.is_over
        for state in self.states:
            state.active[get_ident()] = None
        try:
            if not self.is_over and (is_closing or not any(state.is_closing for state in self.states)):
                if self.cell.value:
                    self._test()
                else:
                    self._end_unseen()
        finally:
            for state in self.states:
                state.leave()
            self.lock.release()
        return self.is_over

    def wait_slice(self, ms: int) -> bool:
        """Waits for it, this long at most. False: it is still in flight."""
        if any(state.is_closing for state in self.states):
            time.sleep(0.001)  # the thread that destroys it looks at the works at last
        if not self.lock.acquire(timeout=ms / 1000):
            return self.is_over  # another thread waits for it
        try:
            if self.is_over:
                return True
            if not self.cell.value:
                self._end_unseen()
                return True
            for state in self.states:
                state.active[get_ident()] = None
            try:
                if any(state.is_closing for state in self.states):
                    return False
                status = _wait(byref(self.cell), ms)
                if status == IN_PROGRESS:
                    return False
                self.end(status)
            finally:
                for state in self.states:
                    state.leave()
            return True
        finally:
            self.lock.release()

    def _test(self) -> None:
        done = c_int()
        status = _test(self.cell, byref(done))
        if done.value:
            self.end(status)
            _release(byref(self.cell))
        elif status != OK:
            raise error_of(status)

    def _end_unseen(self) -> None:
        """The library has freed the handle, and an exception came between its wait and the result."""
        self.end(lib.tutti_comm_status(self.states[0].handle) if self.states[0].handle else OK)

    def end(self, status: int) -> None:
        if status != OK:
            self.error = error_of(status)
        self.error = failure_of(self.ops, self.states) or self.error
        self.trace = None if self.error is None else self.error.__traceback__
        self.is_over, self.keep, self.ops = True, None, ()
        for state in self.states:
            state.flights.discard(self)
        self.tell()

    def check(self) -> None:
        """Raises what it has failed with, again and again the same: without the frames that raised it before."""
        if self.error is not None:
            raise self.error.with_traceback(self.trace)

    def tell(self) -> None:
        while self.on_end:
            with contextlib.suppress(IndexError):  # another thread tells, too
                self.on_end.pop(0)()


def failure_of(ops: Any, states: Tuple[State, ...]) -> Optional[BaseException]:
    """What the function of an operation has raised since: then the result is none, and the other ranks hear of it."""
    for op, known in ops:
        for failure in op._failures[known:]:
            for state in states:
                state.abort()
            return failure  # type: ignore[no-any-return]
    return None


def wait_here(states: Tuple[State, ...], cell: c_void_p) -> int:
    """Waits for the work of a blocking call. An exception meanwhile, as KeyboardInterrupt, aborts its communicators.

    The buffers are the library's until the work is over, so it is waited for before the exception goes on.
    """
    try:
        status = _wait(cell_of := byref(cell), SLICE_MS)
        while status == IN_PROGRESS:
            status = _wait(cell_of, SLICE_MS)
    except BaseException:
        end_here(states, cell)
        raise
    return status  # type: ignore[no-any-return]


def end_here(states: Tuple[State, ...], cell: c_void_p) -> None:
    """Aborts and waits, whatever further signals come."""
    while True:
        try:
            for state in states:
                state.abort()
            while cell.value and states[0].is_here():
                _wait(byref(cell), SLICE_MS)
            return
        except BaseException:
            continue
