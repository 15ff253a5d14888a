#!/usr/bin/env bash
# What would break: ranks that MPICH's mpiexec (hydra) starts on two hosts.
set -u
. "$SOURCE_DIR/tests/launch/launchers.sh"
needs "MPICH's mpiexec" mpiexec.hydra
. "$SOURCE_DIR/tests/launch/two_hosts.sh"
mpiexec="$limit mpiexec.hydra -launcher ssh -launcher-exec $PWD/rsh -hosts n1,n2 -ppn 2 -n 4"

expect 0 $mpiexec -genv MASTER_ADDR n1 -genv MASTER_PORT 29500 -genv TUTTI_SECRET ours "$program"
four
# Where ranks end at once hydra itself ends by SIGPIPE now and then.
hostname_by_hydra()
{
	local code=141
	for _ in 1 2 3 4 5; do
		[ $code = 141 ] || break
		$mpiexec hostname
		code=$?
	done
	return $code
}
two_each hostname_by_hydra
$mpiexec "$program" >out 2>err && complain "ranks of two hosts need no MASTER_ADDR"
grep -q 'mpiexec -genv MASTER_ADDR <host of rank 0>' err || complain "not what to do: $(head -3 err)"
exit $failures
