"""Tutti: collectives between processes, over shared memory and TCP, of NumPy arrays, tensors and other buffers.

    import numpy as np, tutti
    with tutti.init() as comm:                  # from the environment of tuttirun, torchrun, mpirun or srun
        x = np.full(4, comm.rank, np.float32)
        comm.all_reduce(x)                      # in place; returns when the result is there
        work = comm.start.all_reduce(x)         # returns at once
        work.wait()

docs/python.md has tables of all calls, and those of mpi4py and Horovod beside them.
"""

from typing import Union as _Union

from . import _library
from ._calls import ANY
from ._communicator import Comm, CommConfig, CommStats, init, init_all, rendezvous_close, rendezvous_open
from ._groups import group
from ._memory import MemPlace
from ._ops import AVG, BAND, BOR, BXOR, MAX, MIN, PROD, SUM, Op, op_create, op_create_scaled
from ._works import Work
from .errors import (
    AbortedError,
    AuthError,
    DeviceError,
    Error,
    InternalError,
    InvalidError,
    MismatchError,
    OutOfMemoryError,
    PeerError,
    SystemCallError,
    TimeoutError,
    UnsupportedError,
)

__version__ = _library.VERSION


def version() -> str:
    """Of the library."""
    return str(_library.lib.tutti_version().decode())


def revision() -> str:
    """The commit that the library was built from."""
    return str(_library.lib.tutti_revision().decode())


def trace_dump(path: str) -> None:
    """Local, from any thread: writes the last 1,024 operations of each communicator of this process, for Perfetto."""
    import os

    from .errors import check

    check(_library.lib.tutti_trace_dump(os.fsencode(path)))


def crc32c(data: _Union[bytes, bytearray, memoryview], crc: int = 0) -> int:
    """CRC-32C of what crc is of, followed by data."""
    from ._buffers import buffer_of

    buffer = buffer_of(data)
    return int(_library.lib.tutti_crc32c(crc, buffer.address, buffer.count * buffer.dtype.bytes))


__all__ = [
    "ANY", "AVG", "BAND", "BOR", "BXOR", "MAX", "MIN", "PROD", "SUM",
    "AbortedError", "AuthError", "Comm", "CommConfig", "CommStats", "DeviceError", "Error", "InternalError", "InvalidError",
    "MemPlace", "MismatchError", "Op", "OutOfMemoryError", "PeerError", "SystemCallError", "TimeoutError", "UnsupportedError",
    "Work", "crc32c", "group", "init", "init_all", "op_create", "op_create_scaled", "rendezvous_close", "rendezvous_open",
    "revision", "trace_dump", "version",
]  # fmt: skip
