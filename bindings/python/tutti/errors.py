"""What a call of the library that fails raises: its message, with ranks and numbers, and its status."""

import builtins
from typing import Optional

from ._library import OK, lib


class Error(RuntimeError):
    """Any failure of the library. status: its number in tutti.h, name: the same as a word."""

    status = -1
    name = "ERROR"


class InvalidError(Error, ValueError):
    status, name = 2, "INVALID"


class OutOfMemoryError(Error, MemoryError):
    status, name = 3, "MEMORY"


class SystemCallError(Error):
    status, name = 4, "SYSTEM"


class TimeoutError(Error, builtins.TimeoutError):
    """A deadline passed. The message names the ranks that are missing."""

    status, name = 5, "TIMEOUT"


class PeerError(Error):
    """A rank died or went away. Comm.failed has the ranks, and Comm.shrink() goes on without them."""

    status, name = 6, "PEER"


class MismatchError(Error):
    """The ranks did not make the same call. The message shows both."""

    status, name = 7, "MISMATCH"


class AbortedError(Error):
    status, name = 8, "ABORTED"


class AuthError(Error):
    status, name = 9, "AUTH"


class UnsupportedError(Error):
    status, name = 10, "UNSUPPORTED"


class DeviceError(Error):
    status, name = 11, "DEVICE"


class InternalError(Error):
    status, name = 12, "INTERNAL"


_CLASSES = {c.status: c for c in Error.__subclasses__()}


def error_of(status: int, comm: Optional[int] = None) -> Error:
    """The exception of a status that a call just returned in this thread. comm: its handle, or None."""
    message = (lib.tutti_comm_error(comm) or b"").decode(errors="replace")
    return _CLASSES.get(status, Error)(message or lib.tutti_status_string(status).decode())


def check(status: int, comm: Optional[int] = None) -> None:
    if status != OK:
        raise error_of(status, comm)
