#!/usr/bin/env bash
# What would break: ranks that share a core while another one is idle, or run with as many threads as the machine has cores.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
run="timeout -k 5 60 $BUILD_DIR/launch/tuttirun"
unset TUTTI_SECRET TUTTI_SECRET_FILE OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS

# threads COUNT...: each rank's line of output has so many threads.
threads()
{
	[ "$(sort out | tr '\n' ' ')" = "$(printf '%s ' "$@")" ] || complain "threads: $(tr '\n' ' ' <out), not $*"
}

# ---- without hwloc
if ! ldd "$BUILD_DIR/launch/tuttirun" | grep -q libhwloc; then
	expect 2 $run -n 1 --bind-to core true
	said 'needs hwloc.*install libhwloc-dev'
	expect 0 $run -n 1 --bind-to none true
	expect 0 $run -n 2 --report-bindings true
	said '^tuttirun: rank 1 is not bound: .* without hwloc$'
	exit $failures
fi

# on MACHINE ARGUMENTS...: on a machine that hwloc invents. Its cores are dealt, and no process is bound.
on()
{
	local machine=$1
	shift
	# shellcheck disable=SC2016
	expect 0 env HWLOC_SYNTHETIC="$machine" $run --report-bindings "$@" sh -c 'echo $OMP_NUM_THREADS'
}

# ---- cores: whole ones, all of them, neighbours to one rank
on 'pack:2 core:32 pu:1' -n 2
said 'rank 0 is bound to 32 cores, CPU 0-31$'
said 'rank 1 is bound to 32 cores, CPU 32-63$'
threads 32 32
on 'pack:1 core:2 pu:1' -n 2 --bind-to core
said 'rank 0 is bound to 1 core, CPU 0$'
said 'rank 1 is bound to 1 core, CPU 1$'
threads 1 1
on 'pack:1 core:4 pu:2(indexes=0,4,1,5,2,6,3,7)' -n 3
said 'rank 0 is bound to 1 core, CPU 0,4$'
said 'rank 1 is bound to 1 core, CPU 1,5$'
said 'rank 2 is bound to 2 cores, CPU 2-3,6-7$'
threads 1 1 2

# ---- nodes: ranks in blocks
on 'pack:2 [numa] core:4 pu:1' -n 3 --bind-to numa
said 'rank 0 is bound to 4 cores, CPU 0-3$'
said 'rank 1 is bound to 4 cores, CPU 0-3$'
said 'rank 2 is bound to 4 cores, CPU 4-7$'
threads 2 2 2
# Two kinds of memory beside the same cores are one node.
on 'pack:2 [numa] [numa] core:4 pu:1' -n 2 --bind-to numa
said 'rank 1 is bound to 4 cores, CPU 4-7$'

# ---- not bound
on 'pack:1 core:4 pu:1' -n 5
said 'rank 4 is not bound: 5 ranks may use 4 cores$'
threads 1 1 1 1 1
on 'pack:1 core:8 pu:1' -n 2 --bind-to none
said 'rank 0 is not bound: --bind-to none$'
threads 4 4
expect 2 $run -n 1 --bind-to socket true
said "'socket' is not a value for --bind-to"
expect 0 $run -n 2 true
[ ! -s err ] || complain "bindings that nobody asked for: $(cat err)"

# ---- numbers of threads that are set stay
# shellcheck disable=SC2016
expect 0 env OMP_NUM_THREADS=7 HWLOC_SYNTHETIC='pack:1 core:8 pu:1' $run -n 2 \
	sh -c 'echo $OMP_NUM_THREADS $MKL_NUM_THREADS $OPENBLAS_NUM_THREADS'
threads '7 4 4' '7 4 4'

# Where that is allowed, in a network of its own, in which other tests' jobs claim no core.
for alone in 'unshare -n' 'unshare -rn' ''; do
	$alone true 2>/dev/null && break
done
run="$alone $run"

# bound ARGUMENTS...: on this machine. Beside other tests' jobs it may have to be tried again.
bound()
{
	for _ in $(seq 400); do
		expect 0 $run --report-bindings "$@"
		grep -q 'rank 0 is bound' err && return
		[ $failures = 0 ] || return
		sleep 0.05
	done
	complain "no core becomes free: $(cat err)"
}

# ---- here: what was given is kept, a core has one rank, and a rank that comes back its core
allowed='grep Cpus_allowed_list /proc/self/status'
one=$(taskset -cp $$ | sed 's/.*[ ,-]//') # the last CPU
bound -n 1 taskset -c "$one" $allowed
grep -qw "$one" out || complain "not on CPU $one: $(cat out)"
run="taskset -c $one $run"
bound -n 1 $allowed
grep -qw "$one" out || complain "taskset is not obeyed: $(cat out)"
said "rank 0 is bound to 1 core, CPU $one$"
run=${run#taskset -c * }
ranks=$(nproc)
[ "$ranks" -gt 4 ] && ranks=4
bound -n "$ranks" $allowed
[ "$(sort -u out | wc -l)" = "$ranks" ] || complain "ranks share cores: $(cat out)"
# shellcheck disable=SC2016
bound -n "$ranks" --restart rank --max-restarts 1 sh -c 'if [ $RANK != 0 ]; then
		while [ ! -e back ]; do sleep 0.01; done; exit 0; fi
	grep Cpus_allowed_list /proc/self/status; [ -n "$TUTTI_RESTARTED" ] || kill -9 $$; : >back'
[ "$(wc -l <out) $(sort -u out | wc -l)" = "2 1" ] || complain "a rank came back elsewhere: $(cat out)"

# ---- cores of another job
bound -n 1 ${run#"$alone"} -n 1 --report-bindings true
said "rank 0 is not bound: 0 of [0-9]+ cores? are free, another tuttirun's ranks are bound to the rest"
exit $failures
