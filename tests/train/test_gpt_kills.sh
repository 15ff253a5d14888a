#!/usr/bin/env bash
# slow: 26 s
# no_asan: one thread that computes for long in plain arrays
# What would break: training that continues when ranks die, also on a mesh. A rank that is started again gets the others'
# parameters, no step is lost or done twice, and the parameters have the bits of a job in which no rank died. On CPUs and on
# GPUs, which are the fake driver's.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
. "$SOURCE_DIR/tests/train/kill_rank.sh"
unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_RESTARTED

# fingerprint RANKS FILE
fingerprint()
{
	sed -n "s/.*on $1 ranks, fingerprint //p" "$2"
}

# goes_on PROGRAM RANKS OPTION...: each death is replaced
goes_on()
{
	local program=$1 ranks=$2 run job kills=0 line

	shift 2
	run="timeout -k 5 100 $BUILD_DIR/launch/tuttirun -n $ranks --max-restarts 50 --restart rank
		$BUILD_DIR/examples/$program/$program --grow-wait 60 $*"
	rm -rf lines shaken saved
	# shellcheck disable=SC2086
	expect 0 $run
	cp out calm
	rm -rf saved
	[ -n "$(fingerprint "$ranks" calm)" ] || complain "$program $*: no fingerprint: $(tail -3 calm)"
	# Kills it at any moment after a line of its first steps, or of later ones, but not at the end, when others may be done.
	mkfifo lines
	# shellcheck disable=SC2086
	$run >lines 2>err &
	job=$!
	while read -r line; do
		echo "$line" >>shaken
		case $line in
		"step "*) [ $kills -lt 3 ] && kill_rank $job $kills "$program" && kills=$((kills + 1)) ;;
		esac
	done <lines
	wait $job
	[ $? = 0 ] || complain "$program $* did not end well: $(tail -5 err)"
	[ $kills = 3 ] || complain "$program $*: only $kills ranks were killed"
	[ "$(grep -c 'started again' err)" -ge 3 ] || complain "$program $*: they were not started again: $(cat err)"
	[ "$(fingerprint "$ranks" shaken)" = "$(fingerprint "$ranks" calm)" ] ||
		complain "$program $*: other parameters: $(tail -1 shaken), $(tail -1 calm)"
}

goes_on gpt 3 --steps 61
LD_LIBRARY_PATH=$BUILD_DIR/tests/cuda/driver goes_on gpt_cuda 3 --steps 61 --matmul plain --batch 4 --seq 12 --channels 16 \
	--heads 2 --sample 0
mesh="--steps 25 --report-every 6 --layers 2 --sample 0"
# shellcheck disable=SC2086
{
	goes_on gpt 4 $mesh --cp 2 --strategy fsdp --save saved --save-every 7
	goes_on gpt 8 $mesh --dp 2 --pp 2 --tp 2 --micro-batches 2 --schedule zero_bubble
	goes_on gpt 2 $mesh --tp 2 --save saved --save-every 7 # one replica: from the checkpoint
}
exit $failures
