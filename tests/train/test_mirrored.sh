#!/usr/bin/env bash
# What would break: that replicas in processes and threads learn the same, however many of them are in each process, started by
# tuttirun, by TF_CONFIG or by the program itself; that one whose process is killed ends the others.
set -u
. "$SOURCE_DIR/tests/launch/launchers.sh"
mirrored=$BUILD_DIR/examples/mirrored/mirrored
run="timeout -k 5 60 $BUILD_DIR/launch/tuttirun"
unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_LOCAL_RANKS

# learns N: what is in the file out are the losses of N replicas. The first such file is what the others are compared with.
learns()
{
	said "^$1 replicas in sync$" out
	[ -e "wanted_$1" ] || cp out "wanted_$1"
	cmp -s out "wanted_$1" || complain "$1 replicas learn something else: $(diff out "wanted_$1")"
	# The parts of a batch are summed in another order: the same but for rounding.
	paste wanted_1 out | awk '$1 == "step" { difference = $4 - $8; if (difference * difference > 4e-10) bad = 1; rows++ }
		END { exit bad || rows < 9 }' || complain "$1 replicas do not learn what one does: $(cat out)"
}

expect 0 timeout 60 "$mirrored" --local-ranks 1
learns 1
awk '/^step   0/ { first = $4 } { last = $4 } END { exit !(last < first / 4) }' out || complain "nothing is learned: $(cat out)"
for shape in 1x2 2x1 1x4 2x2 4x1 3x2 2x3; do
	p=${shape%x*} t=${shape#*x}
	expect 0 $run -n "$p" --local-ranks "$t" "$mirrored"
	learns $((p * t))
done
expect 0 env TUTTI_WINDOW=0 TUTTI_TRANSPORTS=tcp $run -n 2 --local-ranks 2 "$mirrored"
learns 4
expect 0 timeout 60 "$mirrored" --ranks 2 --local-ranks 2
learns 4

# ---- TF_CONFIG, as of MultiWorkerMirroredStrategy: two workers; a chief and a worker. Each has two replicas.
export TUTTI_SECRET="not much of a secret"
port
for cluster in '"worker": ["127.0.0.1:PORT", "127.0.0.1:1"]' '"chief": ["127.0.0.1:PORT"], "worker": ["127.0.0.1:1"]'; do
	cluster=${cluster/PORT/$port}
	second='"worker", "index": 1' first='"worker", "index": 0'
	[[ $cluster != *chief* ]] || second=$first first='"chief", "index": 0'
	TF_CONFIG="{\"cluster\": {$cluster}, \"task\": {\"type\": $second}}" timeout 60 "$mirrored" --local-ranks 2 >second_out &
	expect 0 env TF_CONFIG="{\"cluster\": {$cluster}, \"task\": {\"type\": $first}}" timeout 60 "$mirrored" --local-ranks 2
	wait $! || complain "the second worker ends with $?"
	learns 4
	[ ! -s second_out ] || complain "the second worker prints $(cat second_out)"
done
unset TUTTI_SECRET

# ---- kill -9: the job ends with the signal, and the ranks of the other process say whose ranks have died
# shellcheck disable=SC2016
$run -n 2 --local-ranks 2 sh -c 'echo $$ >pid_$RANK; exec "$0" --steps 100000000' "$mirrored" >out 2>err & job=$!
for _ in $(seq 2000); do grep -q '^step  50' out && break; sleep 0.02; done
kill -9 "$(cat pid_1)"
wait $job
code=$?
[ $code = 137 ] || complain "a killed process ends the job with $code: $(cat err)"
said '[Rr]ank [23]' err
exit $failures
