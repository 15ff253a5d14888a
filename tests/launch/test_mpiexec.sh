#!/usr/bin/env bash
# What would break: ranks that MPICH's mpiexec (hydra) starts: on one machine, two jobs at once, and on two machines, which hydra
# plays on one.
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

# ---- two machines
two="-launcher fork -hosts a,b -ppn 2 -n 4"
port 29850
expect 0 $mpiexec $two -genv MASTER_ADDR 127.0.0.1 -genv MASTER_PORT "$port" "$program"
four
$mpiexec $two "$program" >out 2>err && complain "ranks of two machines need no MASTER_ADDR"
grep -q 'mpiexec -genv MASTER_ADDR <host of rank 0>' err || complain "not what to do: $(head -3 err)"
exit $failures
