"""The ends of works, for event loops and done functions: no thread waits for each of them, and none asks again and again.

A call that names an eventfd adds 1 to it when it is over (tutti_done_eventfd). The library's thread does that, and never
waits for Python's lock. A loop of asyncio reads the one of its calls, and a thread of this module that of done functions.
Works that were issued outside of the loop that awaits them are looked at every millisecond.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import weakref
from _thread import allocate_lock, get_ident, start_new_thread
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Deque, Dict, Generator, List, Optional

from ._flights import Flight
from ._library import lib
from .errors import Error, InvalidError

LOOK_S = 0.001
_STOP_S = 5  # at exit, for done functions

DONE = ctypes.cast(lib.tutti_done_eventfd, ctypes.c_void_p).value  # call.done of calls that name an eventfd, in done_arg
_eventfd = ctypes.CDLL(None, use_errno=True).eventfd  # os.eventfd is of Python 3.10


class _Fds:
    """Of eventfds. None is ever closed: a call in flight may still write to it, and its number would be another file's. So
    those of ended loops wait here for the next one, to which an old number in them does no harm."""

    def __init__(self) -> None:
        self.free: List[int] = []

    def take(self) -> int:
        if self.free:
            return self.free.pop()
        fd: int = _eventfd(0, os.O_CLOEXEC | os.O_NONBLOCK)
        if fd < 0:
            raise OSError(ctypes.get_errno(), f"eventfd: {os.strerror(ctypes.get_errno())}")
        return fd


def _add(fd: int, count: int) -> None:
    os.write(fd, count.to_bytes(8, sys.byteorder))


class Ends:
    """Works of which somebody wants to know the end, and the eventfd that tells it."""

    def __init__(self) -> None:
        self.fds = _fds
        self.fd = self.fds.take()
        self.told: Dict[Flight, None] = {}  # of calls that add to fd
        self.untold: Dict[Flight, None] = {}

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            self.fds.free.append(self.fd)

    def add(self, flight: Flight, tell: Callable[[], None]) -> None:
        """tell() is called once when it is over, by the thread that sees it first; it does not block."""
        flight.on_end.append(tell)
        (self.told if flight.fd == self.fd else self.untold)[flight] = None
        self._look(flight)

    def _look(self, flight: Flight) -> bool:
        """Whether it is over."""
        if flight.lock.acquire(blocking=False):
            try:
                is_over = flight.look()
            except Error:  # in a forked child: the waiting task looks itself, and gets it
                is_over = True
            finally:
                flight.lock.release()
            if is_over:
                flight.tell()
                self.told.pop(flight, None)
                self.untold.pop(flight, None)
                return True
            if not any(state.is_closing for state in flight.states):
                return False
        # Another thread waits for it, or destroys its communicator, and may give that up.
        self.told.pop(flight, None)
        self.untold[flight] = None
        return False

    def read(self) -> None:
        """So many have ended, or will be seen to have ended: those that were not wanted are among them."""
        count = 0
        try:
            count = int.from_bytes(os.read(self.fd, 8), sys.byteorder)
            for flight in self.told.copy():
                if count == 0:
                    break
                count -= self._look(flight)
        except BlockingIOError:
            pass
        except BaseException:  # of a signal's handler: the rest is looked at later
            _add(self.fd, count + 1)
            raise

    def look_at_untold(self) -> None:
        for flight in self.untold.copy():
            self._look(flight)


_fds = _Fds()


class LoopEnds(Ends):
    """Of an event loop. It holds no reference to the loop, which would keep both for ever."""

    def __init__(self, loop: Any):
        super().__init__()
        loop.add_reader(self.fd, self._read, loop)
        self._has_timer = False

    def _read(self, loop: Any) -> None:
        try:
            self.read()
        finally:
            self.arm(loop)

    def arm(self, loop: Any) -> None:
        if self.untold and not self._has_timer:
            self._has_timer = True
            loop.call_later(LOOK_S, self._tick, loop)

    def _tick(self, loop: Any) -> None:
        self._has_timer = False
        try:
            self.look_at_untold()
        finally:
            self.arm(loop)


_loops: weakref.WeakKeyDictionary[Any, LoopEnds] = weakref.WeakKeyDictionary()


def _running_loop() -> Any:
    events = sys.modules.get("asyncio.events")
    return events._get_running_loop() if events is not None and hasattr(events, "_get_running_loop") else None


def _of_loop(loop: Any) -> LoopEnds:
    ends = _loops.get(loop)
    if ends is None:
        ends = _loops[loop] = LoopEnds(loop)
    return ends


def _wake(loop: Any, future: Any) -> None:
    if _running_loop() is loop:
        _settle(future)
        return
    try:
        loop.call_soon_threadsafe(_settle, future)
    except RuntimeError:  # the loop has been closed
        pass


def _settle(future: Any) -> None:
    if not future.done():
        future.set_result(None)


def wait(flight: Flight, cancel: Callable[[], object]) -> Generator[Any, None, None]:
    """For await: until it is over. cancel is called if the waiting task is cancelled."""
    import asyncio

    loop = asyncio.get_running_loop()
    while not flight.look():
        ends, future = _of_loop(loop), loop.create_future()
        tell = partial(_wake, loop, future)
        try:
            ends.add(flight, tell)
            ends.arm(loop)
            yield from future
        except asyncio.CancelledError:
            cancel()
            raise
        finally:
            with suppress(ValueError):
                flight.on_end.remove(tell)


class DoneEnds(Ends):
    """Of works with done functions, and the thread that calls these, one after another."""

    def __init__(self) -> None:
        super().__init__()
        self._ready: Deque[Optional[Callable[[], Any]]] = deque()
        self.ended = allocate_lock()
        self.ended.acquire()
        self._thread = 0
        start_new_thread(self._run, ())

    def call(self, flight: Flight, function: Callable[[], Any]) -> None:
        """Once it is over."""
        self.add(flight, lambda: self.put(function))
        if self.untold:
            _add(self.fd, 1)

    def put(self, function: Optional[Callable[[], Any]]) -> None:
        """None: the thread ends."""
        self._ready.append(function)
        if get_ident() != self._thread:
            _add(self.fd, 1)

    def _run(self) -> None:
        self._thread = get_ident()
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        while True:
            poll.poll(LOOK_S * 1000 if self.untold else None)
            self.read()
            self.look_at_untold()
            while self._ready:
                function = self._ready.popleft()
                if function is None:
                    self.ended.release()
                    return
                _call(function)


def _call(function: Callable[[], Any]) -> None:
    try:
        function()
    except BaseException as error:  # there is no caller that could get it
        try:
            sys.excepthook(type(error), error, error.__traceback__)
        except BaseException as second:  # of a hook of the program's
            sys.__excepthook__(type(second), second, second.__traceback__)


_done: List[DoneEnds] = []  # one, from the first done function on
_starting = allocate_lock()
_exiting: List[None] = []  # not empty: the interpreter ends, and may start no thread any more


def of_done() -> DoneEnds:
    with _starting:
        if not _done:
            if _exiting:
                raise InvalidError("done: the interpreter ends, and no thread is started any more")
            _done.append(DoneEnds())
        return _done[0]


def fd_of(done: Optional[Callable[..., Any]]) -> Optional[int]:
    """What a call names that is issued here. None: nothing, since no loop runs in this thread."""
    if done is not None:
        if not callable(done):
            raise TypeError(f"done is of type {type(done).__name__}: it must be a function of the work")
        return of_done().fd
    loop = _running_loop()
    return None if loop is None else _of_loop(loop).fd


def begin_exit() -> None:
    with _starting:
        _exiting.append(None)


def stop() -> None:
    """At exit, when all works are over: calls the done functions that are left."""
    for ends in _done:
        ends.put(None)
        ends.ended.acquire(timeout=_STOP_S)


def _forget() -> None:
    """In a forked child: the eventfds are shared with its parent, whose thread and loops are not here."""
    global _fds, _starting
    _fds, _starting = _Fds(), allocate_lock()
    _loops.clear()
    _done.clear()


os.register_at_fork(after_in_child=_forget)
