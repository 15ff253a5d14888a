#!/usr/bin/env bash
# What would break: ranks that MPICH's mpiexec (hydra) starts on one machine, also in two jobs at once.
set -u
. "$SOURCE_DIR/tests/launch/launchers.sh"
needs "MPICH's mpiexec" mpiexec.hydra
mpiexec="$limit mpiexec.hydra"

expect 0 $mpiexec -n 4 "$program"
four
expect 0 $mpiexec -n 4 sh -c "$program; true" # not hydra's own child
four

two_at_once $mpiexec -n 4 "$program"
exit $failures
