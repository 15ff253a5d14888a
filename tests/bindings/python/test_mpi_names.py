"""What would break: a name of mpi4py that is neither there nor says what to use instead, or that docs/python.md leaves out."""

import os
import pathlib

import pytest
from tutti import mpi
from tutti._mpi_absent import ABSENT, _is_one_of

# Of mpi4py 3.1.4 and 4.1; of families such as ERR_* and COMBINER_* a few.
OF_COMM = """Abort Accept Ack_failed Agree Allgather Allgather_init Allgatherv Allgatherv_init Allreduce Allreduce_init
Alltoall Alltoall_init Alltoallv Alltoallv_init Alltoallw Alltoallw_init Attach_buffer Barrier Barrier_init Bcast Bcast_init
Bsend Bsend_init Call_errhandler Cart_map Clone Compare Connect Create Create_cart Create_dist_graph
Create_dist_graph_adjacent Create_errhandler Create_from_group Create_graph Create_group Create_intercomm Create_keyval
Delete_attr Detach_buffer Disconnect Dup Dup_with_info Exscan Exscan_init Flush_buffer Free Free_keyval Gather Gather_init
Gatherv Gatherv_init Get_attr Get_errhandler Get_failed Get_group Get_info Get_name Get_parent Get_rank Get_size
Get_topology Graph_map Iagree Iallgather Iallgatherv Iallreduce Ialltoall Ialltoallv Ialltoallw Iattach_buffer Ibarrier
Ibcast Ibsend Idetach_buffer Idup Idup_with_info Iexscan Iflush_buffer Igather Igatherv Improbe Iprobe Irecv Ireduce
Ireduce_scatter Ireduce_scatter_block Irsend Is_inter Is_intra Is_revoked Iscan Iscatter Iscatterv Isend Isendrecv
Isendrecv_replace Ishrink Issend Join Mprobe Precv_init Probe Psend_init Recv Recv_init Reduce Reduce_init Reduce_scatter
Reduce_scatter_block Reduce_scatter_block_init Reduce_scatter_init Revoke Rsend Rsend_init Scan Scan_init Scatter
Scatter_init Scatterv Scatterv_init Send Send_init Sendrecv Sendrecv_replace Set_attr Set_errhandler Set_info Set_name
Shrink Spawn Spawn_multiple Split Split_type Ssend Ssend_init allgather allreduce alltoall barrier bcast bsend exscan f2py
fromhandle gather group handle ibsend improbe info iprobe irecv is_inter is_intra is_topo isend issend mprobe name probe
py2f rank recv reduce scan scatter send sendrecv size ssend topology"""
OF_REQUEST = """Cancel Free Get_status Get_status_all Get_status_any Get_status_some Test Testall Testany Testsome Wait Waitall
Waitany Waitsome cancel f2py fromhandle get_status get_status_all get_status_any get_status_some handle py2f test testall
testany testsome wait waitall waitany waitsome"""
OF_STATUS = """Get_count Get_elements Get_error Get_source Get_tag Is_cancelled Set_cancelled Set_elements Set_error Set_source
Set_tag cancelled count error f2py py2f source tag"""
OF_OP = "Create Free Is_commutative Reduce_local f2py fromhandle handle is_commutative is_predefined py2f"
OF_MODULE = """AINT ANY_SOURCE ANY_TAG APPNUM Add_error_class Aint_add Alloc_mem Attach_buffer BAND BOOL BOR BOTTOM
BSEND_OVERHEAD BUFFER_AUTOMATIC BXOR BYTE Buffer CART CHAR CHARACTER COMBINER_STRUCT COMM_NULL COMM_SELF COMM_TYPE_SHARED
COMM_TYPE_HW_GUIDED COMM_WORLD COMPLEX COMPLEX16 COMPLEX32 COMPLEX4 COMPLEX8 CONGRUENT COUNT CXX_BOOL CXX_DOUBLE_COMPLEX
CXX_FLOAT_COMPLEX CXX_LONG_DOUBLE_COMPLEX C_BOOL C_COMPLEX C_DOUBLE_COMPLEX C_FLOAT_COMPLEX C_LONG_DOUBLE_COMPLEX Cartcomm
Close_port Comm Compute_dims DATATYPE_NULL DISPLACEMENT_CURRENT DISP_CUR DISTRIBUTE_BLOCK DIST_GRAPH DOUBLE DOUBLE_COMPLEX
DOUBLE_INT DOUBLE_PRECISION Datatype Detach_buffer Distgraphcomm ERRHANDLER_NULL ERRORS_ARE_FATAL ERRORS_RETURN
ERR_TRUNCATE ERR_REVOKED Errhandler Exception FILE_NULL FLOAT FLOAT_INT F_BOOL F_COMPLEX F_DOUBLE F_DOUBLE_COMPLEX F_FLOAT
F_FLOAT_COMPLEX F_INT File Finalize Flush_buffer Free_mem GRAPH GROUP_EMPTY GROUP_NULL Get_address Get_error_class
Get_error_string Get_hw_resource_info Get_library_version Get_processor_name Get_version Graphcomm Grequest Group HOST IDENT
INFO_ENV INFO_NULL INT INT16_T INT32_T INT64_T INT8_T INTEGER INTEGER1 INTEGER16 INTEGER2 INTEGER4 INTEGER8 INT_INT IN_PLACE
IO Iflush_buffer Info Init Init_thread Intercomm Intracomm Is_finalized Is_initialized Is_thread_main KEYVAL_INVALID LAND
LASTUSEDCODE LB LOCK_SHARED LOGICAL LOGICAL4 LONG LONG_DOUBLE LONG_DOUBLE_INT LONG_INT LONG_LONG LOR LXOR Lookup_name MAX
MAXLOC MAX_ERROR_STRING MAX_DATAREP_STRING MESSAGE_NO_PROC MESSAGE_NULL MIN MINLOC MODE_CREATE MODE_NOCHECK Message NO_OP
OFFSET OP_NULL ORDER_C Op Open_port PACKED PROC_NULL PROD Pcontrol Pickle Prequest Publish_name Query_thread REAL REAL16
REAL2 REAL4 REAL8 REPLACE REQUEST_NULL ROOT Register_datarep Remove_error_class Request SEEK_SET SESSION_NULL SHORT SHORT_INT
SIGNED_CHAR SIGNED_INT SIGNED_LONG SIGNED_LONG_LONG SIGNED_SHORT SIMILAR SINT16_T SINT32_T SINT64_T SINT8_T SUBVERSION
SUCCESS SUM Session Status TAG_UB THREAD_MULTIPLE TWOINT TYPECLASS_REAL Topocomm UB UINT16_T UINT32_T UINT64_T UINT8_T
UNDEFINED UNEQUAL UNIVERSE_SIZE UNSIGNED UNSIGNED_CHAR UNSIGNED_INT UNSIGNED_LONG UNSIGNED_LONG_LONG UNSIGNED_SHORT UNWEIGHTED
Unpublish_name VERSION WCHAR WEIGHTS_EMPTY WIN_FLAVOR WIN_NULL WTIME_IS_GLOBAL Win Wtick Wtime buffer get_vendor memory
pickle"""
PAGE = (pathlib.Path(os.environ["SOURCE_DIR"]) / "docs/python.md").read_text()


@pytest.mark.parametrize("owner,instance,names", [
    (mpi, None, OF_MODULE),
    (mpi.Comm, mpi.COMM_SELF, OF_COMM),
    (mpi.Request, mpi.REQUEST_NULL, OF_REQUEST),
    (mpi.Status, mpi.Status(), OF_STATUS),
    (mpi.Op, mpi.SUM, OF_OP),
], ids=["module", "Comm", "Request", "Status", "Op"])  # fmt: skip
def test_names(owner, instance, names):
    of_instances = {"source", "tag", "error", "count"}
    silent = []
    for name in names.split():
        for holder in (owner, instance):
            if holder is None or name in of_instances or name in dir(holder):
                continue
            assert not hasattr(holder, name)
            with pytest.raises(AttributeError) as raised:
                getattr(holder, name)
            if "are not supported. Instead: " not in str(raised.value):
                silent.append((holder, name))
    assert not silent


def test_other_names():
    for holder in (mpi, mpi.Comm, mpi.COMM_SELF, mpi.SUM):
        with pytest.raises(AttributeError, match="has no attribute 'Alreduce'"):
            holder.Alreduce


def test_the_page_has_them():
    """Each kind of what is absent, and what is there of mpi4py's calls."""
    section = " ".join(PAGE.split("## mpi4py and Horovod")[1].replace("`", "").split())
    for what, instead, _ in ABSENT:
        assert f"| {what} | {instead} |" in section, f"docs/python.md lacks: | {what} | {instead} |"
    words = set(section.replace(",", " ").replace(";", " ").split())
    for name in (OF_COMM + " " + OF_REQUEST).split():
        if (name in dir(mpi.Comm) or name in dir(mpi.Request)) and not name.startswith(("Get_", "I")):
            assert words & {name, name.lower(), name.capitalize()}, f"docs/python.md lacks {name}"


def test_no_pattern_without_a_name():
    """A name that is there is not said to be absent, and a pattern stands for something."""
    all_names = " ".join((OF_COMM, OF_REQUEST, OF_STATUS, OF_OP, OF_MODULE)).split()
    for what, _, patterns in ABSENT:
        assert any(_is_one_of(name, patterns) for name in all_names), what
