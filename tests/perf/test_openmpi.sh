#!/usr/bin/env bash
# slow: 7 s
# no_asan: it times or compares programs that other tests run here, too
# What would break: comparisons with Open MPI whose programs do not start, or measure something else.
set -u
ranks_of_it=3 peer=openmpi peer_name="Open MPI" peer_lacks=bfloat16 not_there="" not_in_place=reduce_scatter
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS=detect_leaks=0       # its own

peer_is_here()
{
	mpi_is_here mpicc.openmpi mpirun.openmpi
}

start()
{
	launch="mpirun.openmpi -n $1 --oversubscribe --mca btl self,vader" ranks=
}

. "$SOURCE_DIR/tests/perf/peer.sh"
