"""How a call reaches the library: with a handle that is waited for, or kept as a Work; or into the open group, or a stream."""

from __future__ import annotations

from ctypes import addressof, byref, c_int, c_void_p
from typing import Any, Optional, Tuple

from . import _groups
from ._buffers import Buffer, stream_of
from ._checks import text
from ._ends import DONE
from ._flights import Flight, State, end_here, failure_of, wait_here
from ._library import FUNCTIONS, OK, Call, lib
from ._ops import Op, Watch
from ._types import Options
from .errors import check


class CallArgs:
    """name: of tutti_name. arguments: its own, before comm and call. keep: the buffers and tables that they point to."""

    __slots__ = ("name", "arguments", "keep", "options", "op", "tag", "source")

    def __init__(
        self,
        name: str,
        arguments: Tuple[Any, ...],
        keep: Tuple[Any, ...],
        options: Options,
        op: Optional[Op] = None,
        tag: int = 0,
        source: Optional[c_int] = None,
    ):
        self.name, self.arguments, self.keep, self.options = name, arguments, keep, options
        self.op, self.tag, self.source = op, tag, source


_functions = {name.replace("tutti_", "", 1): getattr(lib, name) for name in FUNCTIONS}


def _call_of(args: CallArgs, cell: Optional[c_void_p], stream: Optional[int]) -> Call:
    call = Call()
    if cell is not None:
        call.work = addressof(cell)
    if stream:
        call.stream = stream
    options = args.options
    if options:
        unknown = options.keys() - {"dtype", "timeout", "label", "stream"}
        if unknown:
            raise TypeError(f"unexpected keyword: {', '.join(sorted(unknown))}")
        call.timeout_ms = _groups.timeout_ms(options.get("timeout"))
        label = options.get("label")
        if label:
            call.label = text(f"{args.name}: label", label)
    if args.source is not None:
        call.source = addressof(args.source)
    call.tag = args.tag
    return call


def _submit(args: CallArgs, handle: int, call: Call, cell: c_void_p) -> int:
    """cell gets the work, also where an exception comes before the status."""
    function = _functions[args.name]
    status = function(*args.arguments, handle, byref(call))
    if status == OK and not cell.value and _groups.cancel():  # it was collected, and is called off
        status = function(*args.arguments, handle, byref(call))
    return status  # type: ignore[no-any-return]


def begin(state: State, args: CallArgs, owner: Any, fd: Optional[int] = None) -> Flight:
    """Issues a call with a handle. owner: the Comm, which stays while its call is in flight. fd: the eventfd of its end."""
    if state.has_dropped:
        state.sweep()
    cell, watch = c_void_p(), _watch(args.op)
    call = _call_of(args, cell, args.options.get("stream") or stream_of(args.name, args.keep))
    if fd is not None:
        call.done, call.done_arg = DONE, fd
    flight = None
    with state as handle:
        try:
            check(_submit(args, handle, call, cell))
            flight = Flight(args.name, cell, (state,), (*args.keep, owner), watch, args.source, fd)
            return flight
        except BaseException:
            if cell.value and flight is None:  # the exception came between the two
                end_here((state,), cell)
            raise


def run(state: State, args: CallArgs) -> None:
    """A call that returns when its result is there; in a group, when it was collected; with a stream, when it was enqueued."""
    if state.has_dropped:
        state.sweep()
    group, watch = _groups.current(), _watch(args.op)
    stream = args.options.get("stream")
    if group is not None or (stream and _are_on_devices(args.keep)):
        call = _call_of(args, None, stream)
        with state as handle:
            check(_functions[args.name](*args.arguments, handle, byref(call)))
        if group is not None:
            group.add(state, (*args.keep, call, args.source), watch)
        return
    cell, states = c_void_p(), (state,)
    call = _call_of(args, cell, stream or stream_of(args.name, args.keep))
    with state as handle:
        try:
            status = _submit(args, handle, call, cell)
            if status == OK:
                status = wait_here(states, cell)
        except BaseException:
            if cell.value:
                end_here(states, cell)
            raise
    if watch:
        failure = failure_of(watch, states)
        if failure is not None:
            raise failure
    check(status)


def _watch(op: Optional[Op]) -> Watch:
    return () if op is None else op.watch


def _are_on_devices(keep: Tuple[Any, ...]) -> bool:
    return all(b.is_device for b in keep if isinstance(b, Buffer))
