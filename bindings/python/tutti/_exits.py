"""The communicators that are open, and what becomes of them when the interpreter ends."""

import atexit
import time
from typing import Dict

from . import _interrupts
from ._library import lib
from ._works import State

_DRAIN_S = 10  # for threads of the program that an abort calls back

open_states: Dict[int, State] = {}  # by id, in the order in which they were made


def opened(state: State) -> State:
    open_states[id(state)] = state
    return state


def _forget(state: State) -> None:
    open_states.pop(id(state), None)
    state.handle = None


def close(state: State, is_exit: bool = False) -> None:
    """Destroys the communicator; of a forked process's parent it is left alone. At exit works in flight are aborted."""
    if not state.is_here():
        _forget(state)
        return
    if is_exit and (state.active or not all([flight.look() for flight in state.flights.copy()])):
        lib.tutti_comm_abort(state.handle)
        deadline = time.monotonic() + _DRAIN_S
        while state.active and time.monotonic() < deadline:
            time.sleep(0.001)
    handle = state.handle
    if not state.active:  # else a thread is still in it, and the end of the process frees it
        _interrupts.call(lib.tutti_comm_destroy, handle, on_interrupt=state.abort)
    _forget(state)
    if not state.active:
        for flight in state.flights.copy():  # all are over now
            flight.look()


@atexit.register
def _close_all() -> None:
    _interrupts.exiting.append(None)
    for state in reversed(list(open_states.values())):
        close(state, is_exit=True)
