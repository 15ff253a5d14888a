#!/usr/bin/env bash
# What would break: ranks that Open MPI's mpirun starts on two hosts.
set -u
. "$SOURCE_DIR/tests/launch/launchers.sh"
needs "Open MPI" mpirun.openmpi
. "$SOURCE_DIR/tests/launch/two_hosts.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TUTTI_SECRET=ours
mpirun="$limit mpirun.openmpi --mca plm_rsh_agent $PWD/rsh --host n1:2,n2:2 -n 4"

expect 0 $mpirun -x MASTER_ADDR=n1 -x TUTTI_SECRET "$program"
four
two_each $mpirun hostname
$mpirun -x TUTTI_SECRET "$program" >out 2>err && complain "ranks of two hosts need no MASTER_ADDR"
grep -q 'mpirun -x MASTER_ADDR=<host of rank 0>' err out || complain "not what to do: $(head -3 err)"
exit $failures
