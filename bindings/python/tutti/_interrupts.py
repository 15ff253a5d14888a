"""Calls of the library without a work to wait for, such as joining: the main thread stays open for signals."""

import _thread
import ctypes
import threading
import time
from threading import get_ident
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _groups
from ._library import OK, lib
from .errors import error_of

exiting: List[None] = []  # not empty: the interpreter ends, and starts no threads any more
_called_off: List[List[None]] = []  # of threads that may not have begun yet: gets an element when they begin
_BEGIN_S = 1


def begin_exit() -> None:
    """A thread that begins while the interpreter ends crashes in CPython before 3.13: those that were called off come first."""
    exiting.append(None)
    deadline = time.monotonic() + _BEGIN_S
    for entered in _called_off:
        while not entered and time.monotonic() < deadline:
            time.sleep(0.001)


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
    return threading.current_thread() is not threading.main_thread() or bool(exiting) or _groups.is_open()


class Once:
    """The first that takes it has it, and may ask again."""

    def __init__(self) -> None:
        self._taken: Dict[None, str] = {}

    def take(self, who: str) -> bool:
        return self._taken.setdefault(None, who) == who


def call(
    function: Any,
    *arguments: Any,
    handle: Optional[int] = None,
    on_interrupt: Optional[Callable[[], None]] = None,
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
    begins = Once()  # the thread, or an exception here that calls it off
    done = threading.Lock()
    done.acquire()
    context = _current_context()

    entered: List[None] = []

    def run() -> None:
        entered.append(None)
        if not begins.take("thread"):
            return
        try:
            if context:
                context[0].cuCtxSetCurrent(context[1])
            status = function(*arguments)
            result.append(None if status in (OK, None) else error_of(status, handle))  # the message is this thread's
        except BaseException as error:
            result.append(error)
        finally:
            done.release()

    try:
        _thread.start_new_thread(run, ())  # the start of a threading.Thread waits, and does not take exceptions there
        done.acquire()
    except BaseException:
        if begins.take("caller"):
            _called_off.append(entered)
            if on_interrupt is not None:
                on_interrupt()
        elif on_interrupt is not None:
            _end(on_interrupt, done, result)
        raise
    if result[0] is not None:
        raise result[0]


def _end(on_interrupt: Callable[[], None], done: Any, result: List[Any]) -> None:
    """Whatever further signals come."""
    while not result:
        try:
            on_interrupt()
            done.acquire(timeout=1)
        except BaseException:
            continue


class Joining:
    """A tutti_init that nobody waits for any more leaves nothing behind."""

    def __init__(self, function: Any, count: int):
        self.function, self.handles = function, (ctypes.c_void_p * count)()
        self.is_abandoned = self.is_over = False
        self._destroys = Once()

    def __call__(self, *arguments: Any) -> int:
        status: int = self.function(self.handles, *arguments)
        self.is_over = True  # and then it looks whether it is abandoned, and run() the other way round
        if self.is_abandoned:
            self._destroy()
        return status

    def _destroy(self) -> None:
        if self._destroys.take(str(get_ident())):
            for handle in self.handles:
                lib.tutti_comm_destroy(handle)

    def run(self, *arguments: Any) -> Tuple[int, ...]:
        try:
            call(self, *arguments)
            return tuple(handle for handle in self.handles if handle)
        except BaseException:
            self.is_abandoned = True
            if self.is_over:
                self._destroy()
            raise
