"""The communicators that are open, and what becomes of them when the interpreter ends."""

import atexit
import time
from typing import Dict

from . import _interrupts
from ._library import lib
from ._works import State
from .errors import InvalidError

_EXIT_S = 10  # for threads of the program that an abort calls back
_LEAVE_S = 1  # for those that only look after works

open_states: Dict[int, State] = {}  # by id, in the order in which they were made


def opened(state: State) -> State:
    open_states[id(state)] = state
    return state


def _drain(state: State, seconds: float) -> bool:
    """Until no thread is in a call on it."""
    deadline = time.monotonic() + seconds
    while state.active and time.monotonic() < deadline:
        time.sleep(0.0005)
    return not state.active


def _forget(state: State) -> None:
    open_states.pop(id(state), None)
    state.handle = None


def close(state: State, is_exit: bool = False) -> None:
    """Destroys the communicator; of a forked process's parent it is left alone. At exit works in flight are aborted."""
    if not state.is_here():
        _forget(state)
        return
    state.is_closing = True
    if is_exit and (not _drain(state, 0) or not all([flight.look(True) for flight in state.flights.copy()])):
        lib.tutti_comm_abort(state.handle)
    if not _drain(state, _EXIT_S if is_exit else _LEAVE_S):
        state.is_closing = is_exit  # and then the end of the process frees it
        if is_exit:
            return
        raise InvalidError("destroy: another thread is in a call of the communicator: abort() makes it return")
    _interrupts.call(lib.tutti_comm_destroy, state.handle, on_interrupt=state.abort)
    _forget(state)
    for flight in state.flights.copy():  # all are over now
        flight.look(True)


@atexit.register
def _close_all() -> None:
    _interrupts.exiting.append(None)
    for state in reversed(list(open_states.values())):
        close(state, is_exit=True)
