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

# ---- two at once: each finds its own ranks
$mpiexec -n 4 "$program" >other 2>&1 & other=$!
expect 0 $mpiexec -n 4 "$program"
wait $other || complain "the other job: $(cat other)"
cat other >>out
four 2
exit $failures
