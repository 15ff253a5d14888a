"""Works: what a program holds of its calls in flight."""

import contextlib
import time
from typing import Any, Generator, Optional

from . import _ends
from ._flights import SLICE_MS, Flight
from ._library import OK, lib
from .errors import InvalidError, check


class Work:
    """A call in flight, of Comm.start or of a group. The library uses the call's buffers until it is over.

    Any thread may wait, test or cancel. A Work that is dropped goes on; its buffers stay until it is over.

    await work, in a running loop of asyncio, is wait() without blocking the loop; any number of tasks may. If the task is
    cancelled (asyncio.wait_for does that, too), so is a recv that no message has met; all other works go on. Issue it in the
    thread of the loop: then the library tells the loop of its end. Otherwise the loop looks after it every millisecond.
    """

    __slots__ = ("_flight", "__weakref__")

    def __init__(self, flight: Flight):
        self._flight = flight

    def wait(self, timeout: Optional[float] = None) -> None:
        """Until the result is there, or timeout seconds: then the built-in TimeoutError, and the work goes on.

        Raises what the call failed with. KeyboardInterrupt comes at once, and the work goes on.
        """
        flight = self._flight
        deadline = None if timeout is None else time.monotonic() + timeout
        ms = SLICE_MS
        while not flight.is_over:
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    if flight.look():
                        break
                    raise TimeoutError(f"{flight.name} is still in flight after {timeout:g} s: the work goes on")
                ms = max(1, min(SLICE_MS, int(left * 1000)))
            flight.wait_slice(ms)
        flight.check()

    def __await__(self) -> Generator[Any, None, None]:
        flight = self._flight
        if not flight.look():
            yield from _ends.wait(flight, self._withdraw)
        flight.check()

    def _withdraw(self) -> None:
        """Of a recv that no other thread waits for."""
        if self._flight.lock.acquire(blocking=False):
            try:
                with contextlib.suppress(InvalidError):  # the communicator is gone
                    self.cancel()
            finally:
                self._flight.lock.release()

    def test(self) -> bool:
        """Whether it is over. Raises what the call failed with. Never blocks."""
        if not self._flight.look():
            return False
        self._flight.check()
        return True

    def cancel(self) -> bool:
        """True: it was a recv that no message had met; it ends with AbortedError, its buffer as it was. False: it goes on."""
        flight = self._flight
        with flight.lock, flight.states[0]:
            return not flight.is_over and lib.tutti_work_cancel(flight.cell) == OK

    def release(self) -> None:
        """Not needed: nobody will ask for the result. The operation goes on, and its buffers stay until it is over."""
        self.__del__()

    def wait_stream(self, stream: int) -> None:
        """The later work of a CUDA stream (its address) waits for the result. Does not block."""
        flight = self._flight
        with flight.lock, flight.states[0]:
            if not flight.is_over:
                check(lib.tutti_work_wait_stream(flight.cell, stream))

    @property
    def source(self) -> int:
        """Of a recv that is over: the rank that sent."""
        if self._flight.source is None:
            raise InvalidError(f"{self._flight.name} has no source: a recv has one")
        return self._flight.source.value

    def __del__(self) -> None:
        # No call of the library: this may run at any point, also in an operation's function.
        flight = getattr(self, "_flight", None)
        if flight is not None and not flight.is_over:
            flight.is_dropped = True
            for state in flight.states:
                state.has_dropped = True

    def __repr__(self) -> str:
        flight = self._flight
        how = "in flight" if not flight.is_over else "failed" if flight.error else "over"
        return f"<tutti.Work {flight.name}, {how}>"
