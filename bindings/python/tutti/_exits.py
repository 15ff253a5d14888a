"""The communicators that are open, and what becomes of them when the interpreter ends."""

import atexit
import os
import threading
import time
from typing import Dict

from . import _ends, _interrupts
from ._flights import SLICE_MS, State
from ._library import lib
from .errors import InvalidError

_EXIT_S = 10  # for threads of the program that an abort calls back
_LEAVE_S = 1  # for those that only look after works

open_states: Dict[int, State] = {}  # by id, in the order in which they were made


def opened(state: State) -> State:
    open_states[id(state)] = state
    return state


def _drain(state: State, seconds: float) -> bool:
    """Until no other thread is in a call on it."""
    deadline = time.monotonic() + seconds
    while state.has_others() and time.monotonic() < deadline:
        time.sleep(0.0005)
    return not state.has_others()


def _destroy(state: State) -> None:
    """Beside the main thread, so that no exception of a signal's handler comes between the two."""
    handle, state.handle = state.handle, None
    lib.tutti_comm_destroy(handle)
    open_states.pop(id(state), None)
    state.is_closing = False


def close(state: State, is_exit: bool = False) -> None:
    """Destroys the communicator; of a forked process's parent it is left alone.

    Works in flight end first; if this thread is interrupted meanwhile, or at exit, they are aborted.
    """
    if not state.is_here():
        state.handle = None
        open_states.pop(id(state), None)
        return
    if not is_exit:
        _await_works(state)
    state.is_closing = True
    if is_exit and (state.has_others() or not all([flight.look(True) for flight in state.flights.copy()])):
        lib.tutti_comm_abort(state.handle)
    if not _drain(state, _EXIT_S if is_exit else _LEAVE_S):
        state.is_closing = is_exit  # and then the end of the process frees it
        if is_exit:
            return
        raise InvalidError("destroy: another thread is in a call of the communicator: abort() makes it return")
    try:
        _interrupts.call(_destroy, state)
    finally:
        state.is_closing = state.handle is None and id(state) in open_states  # still in it, after an interrupt
    for flight in state.flights.copy():  # all are over now
        flight.look(True)


def _await_works(state: State) -> None:
    try:
        for flight in state.flights.copy():
            while not flight.is_over:
                flight.wait_slice(SLICE_MS)
    except BaseException:
        state.abort()
        raise


@atexit.register
def _close_all() -> None:
    _interrupts.begin_exit()
    _ends.begin_exit()
    for state in reversed(list(open_states.values())):
        close(state, is_exit=True)
    _ends.stop()


def _forget_threads() -> None:
    """In a forked child: those that hold a work's lock are the parent's."""
    for state in open_states.values():
        state.active.clear()
        for flight in state.flights:
            if flight.lock.acquire(blocking=False):
                flight.lock.release()
            else:
                flight.lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_threads)
