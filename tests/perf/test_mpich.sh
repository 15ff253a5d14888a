#!/usr/bin/env bash
# slow: 2 s
# no_asan: it times or compares programs that other tests run here, too
# What would break: comparisons with MPICH whose programs do not start, or measure something else.
set -u
ranks_of_it=2 peer=mpich peer_name=MPICH peer_lacks=bfloat16 not_there="" not_in_place=reduce_scatter
export MPIR_CVAR_POLLS_BEFORE_YIELD=1    # ranks may be more than cores
export ASAN_OPTIONS=detect_leaks=0       # its own

peer_is_here()
{
	mpi_is_here mpicc.mpich mpirun.mpich
}

start()
{
	launch="mpirun.mpich -n $1" ranks=
}

. "$SOURCE_DIR/tests/perf/peer.sh"
