"""A lane: one communicator of a process group, and the works in flight on it.

A group has one lane for the program's threads, and one more for each completer (futures.py) whose callbacks issue
calls on the group, so that these need no common order with the program's. Calls are asynchronous, whether or not the
caller waits at once: so threads may take turns, which blocking calls forbid.
"""

import contextlib
import ctypes
import os
import threading
import time
import weakref
from collections import deque
from typing import Optional

import torch

from .._library import OK, Call, lib
from .failures import aborted, failure
from .futures import Completer, forget_threads, future_of

ROOM = 100  # in flight, before calls go in groups of one, which wait for no room: the library's bound is 1,024, or 128
TENDED = 8  # works in flight, before each issue looks whether the oldest have ended, in case nobody waits for them
GRACE_S = 2.0  # how long leaving waits for works in flight, before it aborts them

# torch <= 2.6 holds the C++ half of a Work alone, whose wait() never returns when the Python half is gone: the last
# ones that have ended stay for as long as C++ may ask for them.
_HELD = 32
_ended = deque(maxlen=_HELD) if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7) else None

INVALID = 2
_IN_THE_WAY = "another thread is in a call"

_lanes = weakref.WeakSet()


class Lane:
    is_left = False  # as a group that was destroyed; a forked child's has no comm either, and stays

    def __init__(self, comm: int, name: str):
        self.comm, self.handle, self.name = comm, comm, name
        self.lock = threading.RLock()  # issuing is for one thread at a time; R: a signal's handler may leave
        self.open = {}  # works that have not ended: torch <= 2.6 may drop them, and their buffers must live
        self.call = Call()
        self.call_address = ctypes.addressof(self.call)
        self.completer = None
        self.children_begun = 0  # by threads that are making them now, outside of lock
        self.gone = "has been destroyed"
        _lanes.add(self)

    # ---- issuing

    def issue(self, work) -> None:
        """Starts work's calls, as one where there are several. Raises what the library refuses."""
        work.lane = self
        opened = self.open
        if len(opened) > TENDED:
            self._tend()
        with self.lock:
            self.check()
            self._describe(work)
            opened[work] = None  # before the call: a KeyboardInterrupt may come as soon as it returns
            calls = work.calls
            if len(calls) == 1 and len(opened) <= ROOM:
                function, *arguments = calls[0]
                status = function(*arguments, self.comm, self.call_address)
            else:
                status = self._issue_group(calls)
            if status != OK:
                self._refused(status, work)
            work.is_issued = True
        if work.slot.value is None:  # there is nothing to wait for
            with work.turn:
                work.end(OK)

    def _refused(self, status: int, work) -> None:
        """Tries again where a thread that makes a child was in the way, which sends messages by itself; else raises."""
        while status != OK:
            error = failure(status, self.comm)
            if not (status == INVALID and self.children_begun and _IN_THE_WAY in str(error)):
                self.forget(work)
                raise error
            time.sleep(0)
            status = self._issue_group(work.calls)

    @contextlib.contextmanager
    def child_in_making(self):
        """Its messages need no turn among the calls of this lane, which go on meanwhile."""
        with self.lock:
            self.check()
            self.children_begun += 1
        try:
            yield
        finally:
            with self.lock:
                self.children_begun -= 1

    def check(self) -> None:
        if self.comm is None:
            raise aborted(f"tutti: process group {self.name} {self.gone}")

    def _describe(self, work) -> None:
        call = self.call
        call.work = work.slot_address
        call.timeout_ms = work.timeout_ms
        call.tag = work.tag
        call.stream = work.stream
        call.source = None if work.sender is None else ctypes.addressof(work.sender)

    def _issue_group(self, calls) -> int:
        status = lib.tutti_group_begin()
        for function, *arguments in calls:
            if status == OK:
                status = function(*arguments, self.comm, self.call_address)
        ended = lib.tutti_group_end(self.call_address)
        return status if status != OK else ended

    def _tend(self) -> None:
        """Ends the two oldest works if they are over; one that is not becomes the youngest."""
        for _ in range(2):
            try:
                work = next(iter(self.open), None)
            except RuntimeError:  # another thread has just ended a work
                return
            if work is not None and not work.poll() and self.open.pop(work, 0) is None:
                self.open[work] = None

    def forget(self, work) -> None:
        self.open.pop(work, None)
        if _ended is not None:
            _ended.append(work)

    def future_of(self, work, in_order: bool):
        if self.completer is None:
            with self.lock:
                if self.completer is None:
                    self.completer = Completer(self.name)
        return future_of(work, self.completer, in_order)

    # ---- the end

    def abort(self) -> None:
        if self.comm is not None:
            lib.tutti_comm_abort(self.comm)

    def leave(self, deadline: Optional[float]) -> None:
        """Works in flight may end until deadline (of time.monotonic; None: in GRACE_S), else they are aborted. Callbacks
        that are due run first."""
        with self.lock:
            comm, self.comm = self.comm, None
        self.is_left = True
        if comm is None:
            return
        if deadline is None:
            deadline = time.monotonic() + GRACE_S
        for work in list(self.open):
            work.await_end(max(1, int(1000 * (deadline - time.monotonic()))))
        if self.open:
            lib.tutti_comm_abort(comm)
        for work in list(self.open):
            work.await_end()
        if self.completer is not None:
            self.completer.stop()
        self.handle = None
        lib.tutti_comm_destroy(comm)


def _after_fork() -> None:
    """A forked child has no threads of the library, and its parent's connections are not its own."""
    for lane in list(_lanes):
        lane.comm, lane.gone, lane.lock = None, "belongs to the process that forked this one", threading.RLock()
        for work in list(lane.open):
            work.error, work.is_over = aborted("tutti: this call is one of the process that forked this one"), True
        lane.open.clear()
    forget_threads()


os.register_at_fork(after_in_child=_after_fork)
