#!/usr/bin/env bash
# slow, no_tsan: 12 s; with ThreadSanitizer minutes, for arithmetic
# What would break: a pipeline whose losses depend on the number of stages or of micro-batches, or that hangs when a stage
# is killed, or does not say which.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
program="$BUILD_DIR/examples/rpc_pipeline/rpc_pipeline"
tuttirun="$BUILD_DIR/launch/tuttirun"
unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_RESTARTED TUTTI_MAX_RESTARTS

# learns LINES COMMAND...: it has so many runs, with the losses of the first one ever but for rounding.
learns()
{
	local lines=$1
	shift
	timeout -k 5 200 "$@" >out 2>err || complain "$*: $(tail -5 err)"
	grep '^stages' out >>losses
	[ "$(grep -c '^stages' out)" = "$lines" ] || complain "$*: not $lines runs: $(cat out)"
}

learns 1 "$program" --ranks 1 --steps 20 --split 1
learns 2 "$program" --ranks 1 --steps 20 --split 3,64
learns 4 "$program" --ranks 2 --steps 20 --split 1,2,5,64
learns 4 "$program" --ranks 3 --steps 20 --split 1,2,4,8
learns 3 "$program" --ranks 4 --steps 20 --split 1,4,16
learns 1 "$program" --ranks 3 --stages 8 --steps 20 --split 4
learns 2 "$tuttirun" -n 4 "$program" --steps 20 --split 4,8
awk '{ first = substr($6, 1, length($6) - 1); last = substr($10, 1, length($10) - 1) }
	NR == 1 { a = first; b = last; if (!(b < 0.9 * a)) print "it does not learn: " $0 }
	(first - a) ^ 2 + (last - b) ^ 2 > 1e-8 { print "another loss: " $0 }' losses >differ
[ -s differ ] && complain "$(cat losses differ)"

# killed RANK COMMAND...: rank RANK of four is killed while it trains; the others end, and say so.
killed()
{
	local rank=$1 job code
	shift
	: >out
	timeout -k 5 200 "$@" >out 2>err &
	job=$!
	until [ "$(grep -c 'is process' out)" = 4 ] && grep -q '^stages' out || ! kill -0 $job 2>/dev/null; do
		read -rt 0.01 <> <(:) # rests between two looks
	done
	kill -9 "$(sed -n "s/^rank $rank is process //p" out)"
	wait $job
	code=$?
	[ $code = 137 ] || complain "exit code $code after rank $rank was killed: $(cat err)"
	said "rank $rank .*was killed by signal 9"
}

killed 2 "$program" --ranks 4 --split 2,4,8,16,2,4,8,16 --steps 60
killed 3 "$tuttirun" -n 4 "$program" --split 2,4,8,16,2,4,8,16 --steps 60

for wrong in "--split 0" "--steps 5x" "--lr nan" "--lr fast" "--stages 1.5" "--steps 99999999999"; do
	# shellcheck disable=SC2086
	expect 1 "$program" $wrong
	said 'options are'
done
expect 0 "$program" --help
said 'options are' out
expect 1 "$program" --ranks 2 --split 8 --batch 4
said 'no more than the batch'
exit $failures
