#!/usr/bin/env bash
# slow: 6 s
# no_asan: one thread that computes for long in plain arrays
# What would break: training that continues when ranks die. A rank that is started again gets the others' parameters, no
# step is lost or done twice, and the parameters have the bits of a job in which no rank died. On CPUs and on GPUs, which
# are the fake driver's.
set -u
options="--steps 61 --grow-wait 60"
. "$SOURCE_DIR/tests/scratch.sh"
run="timeout -k 5 100 $BUILD_DIR/launch/tuttirun -n 3 --max-restarts 50 --restart rank"
. "$SOURCE_DIR/tests/train/kill_rank.sh"
unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_RESTARTED

fingerprint()
{
	sed -n 's/.*on 3 ranks, fingerprint //p' "$1"
}

# goes_on PROGRAM OPTION...
goes_on()
{
	local gpt="$BUILD_DIR/examples/$1/$1 $options ${*:2}" job kills=0 line

	rm -f lines shaken
	# shellcheck disable=SC2086
	expect 0 $run $gpt
	cp out calm
	[ -n "$(fingerprint calm)" ] || complain "$1: no fingerprint: $(tail -3 calm)"
	# Kills it at any moment after a line of its first steps, or of later ones, but not at the end, when others may be done.
	mkfifo lines
	# shellcheck disable=SC2086
	$run $gpt >lines 2>err &
	job=$!
	while read -r line; do
		echo "$line" >>shaken
		case $line in
		"step "*) [ $kills -lt 3 ] && kill_rank $job $kills "$1" && kills=$((kills + 1)) ;;
		esac
	done <lines
	wait $job
	[ $? = 0 ] || complain "$1 did not end well: $(tail -5 err)"
	[ $kills = 3 ] || complain "$1: only $kills ranks were killed"
	[ "$(grep -c 'started again' err)" -ge 3 ] || complain "$1: they were not started again: $(cat err)"
	[ "$(fingerprint shaken)" = "$(fingerprint calm)" ] || complain "$1: other parameters: $(tail -1 shaken), $(tail -1 calm)"
}

goes_on gpt
LD_LIBRARY_PATH=$BUILD_DIR/tests/cuda/driver goes_on gpt_cuda --matmul plain --batch 4 --seq 12 --channels 16 --heads 2 --sample 0
exit $failures
