"""How a process group gets its communicators.

The first group, the world, meets through torch's store: rank 0 opens a rendezvous and leaves its URL there. Later
groups are made by their ranks out of the world's communicator, without store or sockets; so are the further lanes of a
group, out of its first. A group without a world of this backend meets as the world does.
"""

import ctypes
import threading
import zlib

import torch

from .._library import OK, Config, lib
from .failures import failure
from .lanes import Lane

_URL_BYTES = 512
_SIGNALS_S = 0.05


def _tag(name: str) -> int:
    """The same on all ranks: tells apart what is made at once."""
    return zlib.crc32(name.encode()) & 0x7FFFFFFF


def _config(name: str, timeout_ms: int) -> Config:
    """The device is named, since another thread may make the call."""
    device = torch.cuda.current_device() + 1 if torch.cuda.is_initialized() else 0
    return Config(timeout_ms=timeout_ms, device=device, name=f"group {name}".encode("ascii", "replace")[:31])


def _make(parent, function, *arguments) -> int:
    """Calls function, which writes a communicator to its last argument. Meanwhile the main thread sees signals, and a
    KeyboardInterrupt leaves the call to its thread."""
    comm = ctypes.c_void_p()
    errors = []

    def call() -> None:
        status = function(*arguments, ctypes.byref(comm))
        if status != OK:
            errors.append(failure(status, parent))

    if threading.current_thread() is threading.main_thread():
        thread = threading.Thread(target=call, name="tutti join", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(_SIGNALS_S)
    else:
        call()
    if errors:
        raise errors[0]
    return comm.value


def alone(name: str, timeout_ms: int) -> Lane:
    comms = (ctypes.c_void_p * 1)()
    config = _config(name, timeout_ms)
    status = lib.tutti_init_all(comms, 1, ctypes.byref(config))
    if status != OK:
        raise failure(status, None)
    return Lane(comms[0], name)


def _key(store, rank: int) -> str:
    """Of this meeting in store, which all ranks have used equally often: torch gives the same store to a world that is
    made after another was destroyed, and where torchrun keeps it, the other's URL is still in it."""
    return f"tutti/{store.add(f'tutti/rank {rank}', 1)}"


def meet(store, rank: int, size: int, name: str, timeout_ms: int) -> Lane:
    config = _config(name, timeout_ms)
    config.rank, config.world_size = rank, size
    key = _key(store, rank)
    if rank == 0:
        opened = ctypes.create_string_buffer(_URL_BYTES)
        status = lib.tutti_rendezvous_open(opened, _URL_BYTES)
        if status != OK:
            raise failure(status, None)
        store.set(key, opened.value)
    url = bytes(store.get(key))
    config.rendezvous = url
    try:
        # tutti_init has its communicator first
        comm = _make(None, lambda comm: lib.tutti_init(comm, ctypes.byref(config)))
    except BaseException:
        if rank == 0:
            lib.tutti_rendezvous_close(url)
        raise
    return Lane(comm, name)


def child(parent: Lane, ranks, name: str, timeout_ms: int) -> Lane:
    """Of the ranks of parent that are listed, which all call this."""
    listed = (ctypes.c_int * len(ranks))(*ranks)
    config = _config(name, timeout_ms)
    with parent.child_in_making():
        count, tag = len(ranks), _tag(name)
        comm = _make(
            parent.comm, lib.tutti_comm_create_from, parent.comm, listed, count, tag, ctypes.byref(config)
        )
    return Lane(comm, name)
