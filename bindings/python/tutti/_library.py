"""libtutti.so: where it is, its structures, and the types of its functions.

LIBTUTTI=path names a library; else the package's own is taken (lib/libtutti.so.1, in wheels), else the system's.
"""

import ctypes
import os
from ctypes import Structure, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p

VERSION = "0.2.0"

OK, IN_PROGRESS = 0, 1
REDUCE = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_size_t, c_int, c_void_p)


class Config(Structure):
    """tutti_config"""

    _fields_ = [
        ("rank", c_int),
        ("world_size", c_int),
        ("rendezvous", c_char_p),
        ("transports", c_char_p),
        ("secret", c_char_p),
        ("timeout_ms", c_int),
        ("device", c_int),
        ("deterministic", c_int),
        ("name", c_char_p),
        ("local_ranks", c_int),
        ("reserved", c_uint64 * 6),
    ]


class Call(Structure):
    """tutti_call. work and source are addresses: a pointer object for each call would cost a microsecond."""

    _fields_ = [
        ("work", c_void_p),
        ("stream", c_void_p),
        ("timeout_ms", c_int),
        ("tag", c_int),
        ("done", c_void_p),
        ("done_arg", c_void_p),
        ("source", c_void_p),
        ("label", c_char_p),
        ("reserved", c_uint64 * 5),
    ]


class Stats(Structure):
    """tutti_stats"""

    _fields_ = [
        (name, c_uint64) for name in ("collectives", "messages", "sent_bytes", "received_bytes", "window_bytes", "staged_bytes")
    ] + [("reserved", c_uint64 * 8)]


class Place(Structure):
    """tutti_mem_place"""

    _fields_ = [("allocation", c_uint64), ("offset", c_uint64)]


_pointer, _size, _int, _text = c_void_p, c_size_t, c_int, c_char_p
_counts = c_void_p  # an array of c_size_t, or None

# name: (result, arguments...). Pointers to what a function writes are c_void_p: byref() and addresses fit.
FUNCTIONS = {
    "tutti_init": (_int, _pointer, _pointer),
    "tutti_init_all": (_int, _pointer, _int, _pointer),
    "tutti_rendezvous_open": (_int, _pointer, _size),
    "tutti_rendezvous_close": (_int, _text),
    "tutti_comm_split": (_int, _pointer, _int, _int, _pointer, _pointer),
    "tutti_comm_create_from": (_int, _pointer, _pointer, _int, _int, _pointer, _pointer),
    "tutti_comm_dup": (_int, _pointer, _pointer),
    "tutti_comm_shrink": (_int, _pointer, _pointer),
    "tutti_comm_grow": (_int, _pointer, _int, _pointer, _pointer),
    "tutti_recover": (_int, _pointer, _int),
    "tutti_comm_agree": (_int, _pointer, _pointer),
    "tutti_comm_abort": (_int, _pointer),
    "tutti_comm_destroy": (None, _pointer),
    "tutti_rank": (_int, _pointer),
    "tutti_size": (_int, _pointer),
    "tutti_local_rank": (_int, _pointer),
    "tutti_local_size": (_int, _pointer),
    "tutti_node_rank": (_int, _pointer),
    "tutti_num_nodes": (_int, _pointer),
    "tutti_parent_rank": (_int, _pointer, _int),
    "tutti_comm_status": (_int, _pointer),
    "tutti_comm_failed": (_int, _pointer, _pointer, _int),
    "tutti_comm_sequence": (c_uint64, _pointer),
    "tutti_comm_config": (_int, _pointer, _pointer),
    "tutti_comm_stats": (_int, _pointer, _pointer),
    "tutti_comm_error": (_text, _pointer),
    "tutti_status_string": (_text, _int),
    "tutti_version": (_text,),
    "tutti_revision": (_text,),
    "tutti_trace_dump": (_int, _text),
    "tutti_crc32c": (c_uint32, c_uint32, _pointer, _size),
    "tutti_op_create": (_int, _pointer, _text, REDUCE, _pointer),
    "tutti_op_create_scaled": (_int, _pointer, _pointer, _int),
    "tutti_op_destroy": (None, _int),
    "tutti_all_reduce": (_int, _pointer, _pointer, _size, _int, _int, _pointer, _pointer),
    "tutti_reduce": (_int, _pointer, _pointer, _size, _int, _int, _int, _pointer, _pointer),
    "tutti_broadcast": (_int, _pointer, _pointer, _size, _int, _int, _pointer, _pointer),
    "tutti_all_gather": (_int, _pointer, _pointer, _size, _int, _pointer, _pointer),
    "tutti_reduce_scatter": (_int, _pointer, _pointer, _size, _int, _int, _pointer, _pointer),
    "tutti_gather": (_int, _pointer, _pointer, _size, _int, _int, _pointer, _pointer),
    "tutti_scatter": (_int, _pointer, _pointer, _size, _int, _int, _pointer, _pointer),
    "tutti_all_to_all": (_int, _pointer, _pointer, _size, _int, _pointer, _pointer),
    "tutti_all_gatherv": (_int, _pointer, _pointer, _counts, _counts, _int, _pointer, _pointer),
    "tutti_reduce_scatterv": (_int, _pointer, _pointer, _counts, _counts, _int, _int, _pointer, _pointer),
    "tutti_gatherv": (_int, _pointer, _pointer, _counts, _counts, _int, _int, _pointer, _pointer),
    "tutti_scatterv": (_int, _pointer, _pointer, _counts, _counts, _int, _int, _pointer, _pointer),
    "tutti_all_to_allv": (_int, _pointer, _counts, _counts, _pointer, _counts, _counts, _int, _pointer, _pointer),
    "tutti_barrier": (_int, _pointer, _pointer),
    "tutti_send": (_int, _pointer, _size, _int, _int, _pointer, _pointer),
    "tutti_recv": (_int, _pointer, _size, _int, _int, _pointer, _pointer),
    "tutti_done_eventfd": (None, _pointer, _int),
    "tutti_group_begin": (_int,),
    "tutti_group_end": (_int, _pointer),
    "tutti_group_refuse": (_int, _text),
    "tutti_work_wait": (_int, _pointer, _int),
    "tutti_work_wait_stream": (_int, _pointer, _pointer),
    "tutti_work_test": (_int, _pointer, _pointer),
    "tutti_work_cancel": (_int, _pointer),
    "tutti_work_release": (None, _pointer),
    "tutti_mem_alloc": (_int, _pointer, _size, _pointer),
    "tutti_mem_free": (_int, _pointer),
    "tutti_mem_place_of": (_int, _pointer, _pointer, _size, _pointer),
    "tutti_mem_at": (_pointer, _pointer, _size, _pointer),
    "tutti_mem_register": (_int, _pointer, _size, _pointer),
    "tutti_mem_deregister": (_int, _pointer, _pointer),
}


def _load() -> ctypes.CDLL:
    named = os.environ.get("LIBTUTTI")
    own = os.path.join(os.path.dirname(__file__), "lib", "libtutti.so.1")
    tried = [named] if named else [own, "libtutti.so.1"]
    errors = []
    for path in tried:
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            errors.append(str(error))
    raise ImportError(
        "tutti: there is no libtutti.so.1: " + "; ".join(errors) + ". Install Tutti, or set LIBTUTTI to the library's path."
    )


def _declare(library: ctypes.CDLL) -> None:
    for name, (result, *arguments) in FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"tutti: {library._name} has no {name}: it is older than this package, {VERSION}") from None
        function.restype, function.argtypes = result, arguments
    version = library.tutti_version().decode()
    if version.split(".")[:2] != VERSION.split(".")[:2]:
        raise ImportError(f"tutti: {library._name} is version {version}, and this package needs {VERSION}")


lib = _load()
_declare(lib)
