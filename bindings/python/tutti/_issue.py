"""How a call reaches the library: with a handle that is waited for, or kept as a Work; or into the open group, or a stream."""

from __future__ import annotations

from ctypes import addressof, byref, c_int, c_void_p
from typing import TYPE_CHECKING, Any, Optional, Tuple

from . import _groups
from ._buffers import Buffer
from ._library import OK, Call
from ._ops import Op
from ._works import Flight, State, end_here, failure_of, wait_here
from .errors import InvalidError, error_of

if TYPE_CHECKING:
    from typing import TypedDict

    class Options(TypedDict, total=False):
        """Of every call."""

        dtype: Any
        timeout: Optional[float]
        label: Optional[str]
        stream: Optional[int]


def call_of(options: Options, cell: Optional[c_void_p], stream: Optional[int], tag: int, source: Optional[c_int]) -> Call:
    call = Call()
    if cell is not None:
        call.work = addressof(cell)
    if stream:
        call.stream = stream
    if options:
        unknown = options.keys() - {"dtype", "timeout", "label", "stream"}
        if unknown:
            raise TypeError(f"unexpected keyword: {', '.join(sorted(unknown))}")
        call.timeout_ms = _groups.timeout_ms(options.get("timeout"))
        label = options.get("label")
        call.label = label.encode() if label else None
    if source is not None:
        call.source = addressof(source)
    call.tag = tag
    return call


def stream_of(name: str, keep: Any) -> Optional[int]:
    """The stream that the device buffers of a call came with."""
    found: Optional[Buffer] = None
    for buffer in keep if isinstance(keep, tuple) else (keep,):
        if isinstance(buffer, Buffer) and buffer.is_device:
            if found is not None and found.stream != buffer.stream:
                raise InvalidError(f"{name}: its buffers come with different streams: name one by stream=")
            found = buffer
    return found.stream if found is not None else None


def begin(
    state: State,
    name: str,
    function: Any,
    arguments: Tuple[Any, ...],
    keep: Any,
    op: Optional[Op],
    options: Options,
    tag: int,
    source: Optional[c_int],
    owner: Any,
) -> Flight:
    """Issues a call with a handle. owner: the Comm, which stays while its call is in flight."""
    if state.has_dropped:
        state.sweep()
    cell = c_void_p()
    call = call_of(options, cell, options.get("stream") or stream_of(name, keep), tag, source)
    flight = None
    with state as handle:
        try:
            check_status(function(*arguments, handle, byref(call)))
            if not cell.value and _groups.cancel():  # it was collected, and is called off
                check_status(function(*arguments, handle, byref(call)))
            flight = Flight(name, cell, (state,), (keep, owner), _own(op), source)
            return flight
        except BaseException:
            if cell.value and flight is None:  # the exception came between the two
                end_here((state,), cell)
            raise


def run(
    state: State,
    name: str,
    function: Any,
    arguments: Tuple[Any, ...],
    keep: Any,
    op: Optional[Op],
    options: Options,
    tag: int,
    source: Optional[c_int],
) -> None:
    """A call that returns when its result is there; in a group, when it was collected; with a stream, when it was enqueued."""
    if state.has_dropped:
        state.sweep()
    group = _groups.current()
    stream = options.get("stream") if options else None
    if group is not None or (stream and _are_on_devices(keep)):
        call = call_of(options, None, stream, tag, source)
        with state as handle:
            check_status(function(*arguments, handle, byref(call)))
        if group is not None:
            group.add(state, keep, (call, source), _own(op))
        return
    cell, states = c_void_p(), (state,)
    call = call_of(options, cell, stream or stream_of(name, keep), tag, source)
    with state as handle:
        try:
            status = function(*arguments, handle, byref(call))
            if status == OK and not cell.value and _groups.cancel():  # it was collected, and is called off
                status = function(*arguments, handle, byref(call))
            if status == OK:
                status = wait_here(states, cell)
        except BaseException:
            if cell.value:
                end_here(states, cell)
            raise
    if op is not None and op._function is not None:
        failure = failure_of((op,), states)
        if failure is not None:
            raise failure
    check_status(status)


def _own(op: Optional[Op]) -> Tuple[Op, ...]:
    """The operation, if it calls a function of the caller's."""
    return () if op is None or op._function is None else (op,)


def _are_on_devices(keep: Any) -> bool:
    return all(b.is_device for b in (keep if isinstance(keep, tuple) else (keep,)) if isinstance(b, Buffer))


def check_status(status: int) -> None:
    if status != OK:
        raise error_of(status)
