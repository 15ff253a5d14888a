#!/usr/bin/env bash
# What would break: ranks that are bound to a core each, as mpirun and srun do it, count as many ranks on one
# core and give it away at every look.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
unset TUTTI_SECRET TUTTI_SECRET_FILE
export TUTTI_LOG=info

# The first two CPUs that this process may use.
cpus=
for ((i = 0; i < 1024 && $(wc -w <<<"$cpus") < 2; i++)); do
	taskset -c "$i" true 2>taskset.err && [ "$(taskset -c "$i" nproc)" = 1 ] && cpus+=" $i"
done
# shellcheck disable=SC2086
set -- $cpus
if [ $# -lt 2 ]; then
	echo "there is only one CPU"
	exit 77
fi

job()
{
	expect 0 timeout -k 5 60 "$BUILD_DIR/launch/tuttirun" -n 2 sh -c "exec taskset -c $1 \
		$BUILD_DIR/perf/barrier_perf -n 100 -c 0"
	grep -qF "$2" err || complain "CPUs $1: no '$2' in: $(cat err)"
}

# shellcheck disable=SC2016
job "\$((LOCAL_RANK ? $2 : $1))" "2 ranks on 2 cores"
job "$1" "2 ranks on 1 core"
job "$1,$2" "2 ranks on 2 cores"
exit $failures
