"""How a process group gets its communicators.

The first group, the world, meets through torch's store: rank 0 opens a rendezvous and leaves its URL there. Later
groups are made by their ranks out of the world's communicator, without store or sockets; so are the further lanes of a
group, out of its first. A group without a world of this backend meets as the world does.
"""

import ctypes
import zlib

from .._library import OK, Config, lib
from .failures import failure
from .lanes import Lane

_URL_BYTES = 512


def _tag(name: str) -> int:
    """The same on all ranks: tells apart what is made at once."""
    return zlib.crc32(name.encode()) & 0x7FFFFFFF


def _config(name: str, timeout_ms: int) -> Config:
    return Config(timeout_ms=timeout_ms, name=f"group {name}".encode("ascii", "replace")[:31])


def alone(name: str, timeout_ms: int) -> Lane:
    comms = (ctypes.c_void_p * 1)()
    config = _config(name, timeout_ms)
    status = lib.tutti_init_all(comms, 1, ctypes.byref(config))
    if status != OK:
        raise failure(status, None)
    return Lane(comms[0], name)


def meet(store, rank: int, size: int, name: str, timeout_ms: int) -> Lane:
    config = _config(name, timeout_ms)
    config.rank, config.world_size = rank, size
    if rank == 0:
        opened = ctypes.create_string_buffer(_URL_BYTES)
        status = lib.tutti_rendezvous_open(opened, _URL_BYTES)
        if status != OK:
            raise failure(status, None)
        store.set("tutti", opened.value)
    url = bytes(store.get("tutti"))
    config.rendezvous = url
    comm = ctypes.c_void_p()
    status = lib.tutti_init(ctypes.byref(comm), ctypes.byref(config))
    if status != OK:
        error = failure(status, None)
        if rank == 0:
            lib.tutti_rendezvous_close(url)
        raise error
    return Lane(comm.value, name)


def child(parent: Lane, ranks, name: str, timeout_ms: int) -> Lane:
    """Of the ranks of parent that are listed, which all call this."""
    listed = (ctypes.c_int * len(ranks))(*ranks)
    config = _config(name, timeout_ms)
    comm = ctypes.c_void_p()
    with parent.child_in_making():
        status = lib.tutti_comm_create_from(
            parent.comm, listed, len(ranks), _tag(name), ctypes.byref(config), ctypes.byref(comm)
        )
        if status != OK:
            raise failure(status, parent.comm)
    return Lane(comm.value, name)
