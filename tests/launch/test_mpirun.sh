#!/usr/bin/env bash
# What would break: ranks that Open MPI's mpirun starts, two jobs of it at once, and ranks of it that cannot know where rank 0 is.
set -u
. "$SOURCE_DIR/tests/launch/launchers.sh"
needs "Open MPI" mpirun.openmpi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun="$limit mpirun.openmpi --oversubscribe"

expect 0 $mpirun -n 4 "$program"
four

two_at_once $mpirun -n 4 "$program"

# ---- where rank 0 is
port
expect 0 $mpirun -n 4 -x MASTER_ADDR=127.0.0.1 -x MASTER_PORT="$port" "$program"
four
exit $failures
