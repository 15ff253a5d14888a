"""Exceptions: the library's own, which are torch's DistBackendError too where torch has it."""

import torch.distributed as dist

from .. import errors

_Base = getattr(dist, "DistBackendError", None)


def _joined(kind: type) -> type:
    if _Base is None:
        return kind
    try:
        return type(kind.__name__, (kind, _Base), {"__module__": __name__, "__doc__": kind.__doc__})
    except TypeError:  # bases whose memory does not fit together
        return kind


_JOINED = {kind: _joined(kind) for kind in (errors.Error, *errors.Error.__subclasses__())}


def failure(status: int, comm):
    """The exception of a call of comm that returned status in this thread just now."""
    error = errors.error_of(status, comm)
    text = str(error)
    return _JOINED[type(error)](text if text.startswith("tutti") else f"tutti: {text}")


def timed_out(text: str):
    return _JOINED[errors.TimeoutError](text)


def refused(text: str):
    return _JOINED[errors.InvalidError](text)


def unsupported(text: str):
    return _JOINED[errors.UnsupportedError](text)


def aborted(text: str):
    return _JOINED[errors.AbortedError](text)
