"""mpi4py's names that tutti.mpi lacks: using one raises an AttributeError that names the replacement.

docs/python.md lists the kinds, and tests/bindings/python/test_mpi_names.py compares both with mpi4py's names.
"""

from fnmatch import fnmatchcase
from typing import Any, Tuple

# What is absent, what to use instead, and the names, as patterns of fnmatch.
ABSENT: Tuple[Tuple[str, str, str], ...] = (
    (
        "one-sided calls",
        "comm.tutti.mem_alloc and mem_at share memory between the ranks of a machine",
        "Win WIN_* LOCK_* REPLACE NO_OP MODE_NO* Aint_* Get_address BOTTOM Alloc_mem Free_mem memory buffer",
    ),
    ("files", "let one rank write, or each its own", "File FILE_NULL MODE_* SEEK_* DISP* *datarep* *DATAREP*"),
    (
        "derived types",
        "send a contiguous copy, or records by [array, MPI.BYTE]",
        "Datatype DATATYPE_NULL COMBINER_* DISTRIBUTE_* ORDER_* TYPECLASS_* LB UB Alltoallw Ialltoallw",
    ),
    (
        "types that Tutti does not have",
        "[array, MPI.BYTE] moves any memory",
        "LONG_DOUBLE* *_LONG_DOUBLE_COMPLEX WCHAR CHARACTER PACKED LOGICAL* INTEGER16 REAL2 REAL16 COMPLEX4 COMPLEX32 F_BOOL "
        "BFLOAT16 *FLOAT16*",
    ),
    (
        "probes",
        "let the receiver know the size, or send objects by send and recv",
        "*probe *Probe Message MESSAGE_* Mrecv",
    ),
    (
        "synchronous, buffered and ready sends",
        "Send and Isend; a recv of an answer shows that a message was received",
        "Ssend Issend Bsend Ibsend Rsend Irsend ssend issend bsend ibsend *ttach_buffer *etach_buffer *lush_buffer "
        "BSEND_OVERHEAD BUFFER_AUTOMATIC",
    ),
    ("persistent and partitioned requests", "Isend and Irecv in each iteration", "*_init Prequest Start Startall"),
    (
        "scans of buffers, Igatherv and Iscatterv, Isendrecv",
        "scan and exscan of objects; Gatherv and Scatterv; Isend and Irecv",
        "Scan Exscan Iscan Iexscan Igatherv Iscatterv Isendrecv*",
    ),
    (
        "groups",
        "Split, or comm.tutti.create_from(ranks)",
        "Group GROUP_* Get_group group Create Create_group Create_from_group Compare IDENT CONGRUENT SIMILAR UNEQUAL "
        "Idup Idup_with_info Dup_with_info Split_type_*",
    ),
    (
        "topologies",
        "rank arithmetic, or comm.tutti.node_rank",
        "Cart* CART Graph* GRAPH Dist* DIST_GRAPH Topo* Create_cart Create_*graph* Compute_dims Get_topology topology is_topo "
        "UNWEIGHTED WEIGHTS_EMPTY COMM_TYPE_* Neighbor_* Ineighbor_* neighbor_*",
    ),
    (
        "processes started or connected later",
        "comm.tutti.grow(size)",
        "Intercomm ROOT Spawn* Get_parent Join Connect Accept Create_intercomm *_port Lookup_name Publish_name Unpublish_name "
        "Is_inter Is_intra is_inter is_intra APPNUM UNIVERSE_SIZE Session SESSION_NULL",
    ),
    (
        "ULFM's names for recovery",
        "comm.tutti.failed, shrink, agree, abort and recover",
        "Revoke Is_revoked Get_failed Ack_failed Shrink Ishrink Agree Iagree",
    ),
    (
        "attributes, infos and error handlers",
        "errors are exceptions: MPI.Exception",
        "Info INFO_* Get_info Set_info info *_keyval KEYVAL_INVALID *_attr Errhandler ERRHANDLER_NULL ERRORS_* "
        "*_errhandler Set_name Add_error_* Remove_error_* Get_error_class Get_error_string ERR_* LASTUSEDCODE SUCCESS Get_hw_*",
    ),
    (
        "requests and statuses that the program creates or changes",
        "those that the calls return",
        "Grequest Get_status get_status Get_status_* get_status_* cancel Set_* Get_elements Is_cancelled "
        "cancelled f2py py2f fromhandle "
        "handle toint fromint OP_NULL",
    ),
    (
        "methods of an op",
        "op(a, b) of objects, tutti.op_create for buffers",
        "Is_commutative is_commutative Reduce_local",
    ),
    (
        "MPI's initialization, versions and implementation details",
        "COMM_WORLD joins in its first call; tutti.version()",
        "Init Init_thread Query_thread Is_thread_main THREAD_* Get_version Get_library_version VERSION SUBVERSION MAX_* "
        "Pcontrol Wtick WTIME_IS_GLOBAL TAG_UB HOST IO Pickle pickle get_vendor Buffer UNDEFINED_*",
    ),
)


def _is_one_of(name: str, patterns: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns.split())


def _error(where: str, name: str) -> AttributeError:
    for what, instead, patterns in ABSENT:
        if _is_one_of(name, patterns):
            return AttributeError(f"{where} has no {name}: {what} are not supported. Instead: {instead} (docs/python.md)")
    return AttributeError(f"{where} has no attribute {name!r}")


class _NamesOfClass(type):
    def __getattr__(cls, name: str) -> Any:
        raise _error(f"tutti.mpi.{cls.__name__}", name)


class Names(metaclass=_NamesOfClass):
    """Base of mpi4py's classes: an attribute that the class or an instance lacks raises _error."""

    def __getattr__(self, name: str) -> Any:
        raise _error(f"tutti.mpi.{type(self).__name__}", name)


def module_attribute(name: str) -> Any:
    raise _error("tutti.mpi", name)
