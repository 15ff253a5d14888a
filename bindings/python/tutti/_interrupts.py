"""Calls of the library without a work to wait for, such as joining: the main thread stays open for signals."""

import ctypes
import threading
from typing import Any, Callable, List, Optional, Tuple

from ._library import OK, lib
from .errors import error_of

exiting: List[None] = []  # not empty: the interpreter ends, and starts no threads any more


def _current_context() -> Any:
    """The CUDA context of this thread, and the driver; None: there is no driver in this process, or no context."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=4)  # RTLD_NOLOAD
    except OSError:
        return None
    context = ctypes.c_void_p()
    if driver.cuCtxGetCurrent(ctypes.byref(context)) != 0 or not context.value:
        return None
    return driver, context


def _is_direct() -> bool:
    from . import _groups

    return threading.current_thread() is not threading.main_thread() or bool(exiting) or _groups.is_open()


def call(
    function: Any, *arguments: Any, handle: Optional[int] = None, on_interrupt: Optional[Callable[[], None]] = None
) -> None:
    """Calls function in another thread. Raises its error, or what a signal's handler raised meanwhile.

    Then on_interrupt() makes the function return, and is waited for; None: the function goes on alone, its result unused.
    """
    if _is_direct():
        status = function(*arguments)
        if status not in (OK, None):
            raise error_of(status, handle)
        return
    result: List[Optional[BaseException]] = []
    begun: List[None] = []
    given_up: List[None] = []
    done = threading.Lock()
    done.acquire()
    context = _current_context()

    def run() -> None:
        begun.append(None)
        try:
            if given_up:
                return
            if context:
                context[0].cuCtxSetCurrent(context[1])
            status = function(*arguments)
            result.append(None if status in (OK, None) else error_of(status, handle))  # the message is this thread's
        except BaseException as error:
            result.append(error)
        finally:
            done.release()

    try:
        threading.Thread(target=run, name="tutti", daemon=True).start()
        done.acquire()
    except BaseException:
        given_up.append(None)  # before begun is looked at, as run() does it the other way round: one of the two sees the other
        if on_interrupt is not None:
            on_interrupt()
            if begun:
                _end(on_interrupt, done)
        raise
    if result[0] is not None:
        raise result[0]


def _end(on_interrupt: Callable[[], None], done: threading.Lock) -> None:
    """Whatever further signals come."""
    while True:
        try:
            on_interrupt()
            if done.acquire(timeout=1):
                return
        except BaseException:
            continue


class Joining:
    """A tutti_init that nobody waits for any more leaves nothing behind."""

    def __init__(self, function: Any, count: int):
        self.function, self.handles = function, (ctypes.c_void_p * count)()
        self.is_abandoned = False

    def __call__(self, *arguments: Any) -> int:
        status: int = self.function(self.handles, *arguments)
        if status == OK and self.is_abandoned:
            for handle in self.handles:
                lib.tutti_comm_destroy(handle)
        return status

    def run(self, *arguments: Any) -> Tuple[int, ...]:
        try:
            call(self, *arguments)
        except BaseException:
            self.is_abandoned = True
            raise
        return tuple(handle for handle in self.handles if handle)
