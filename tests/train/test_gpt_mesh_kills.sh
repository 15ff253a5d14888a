#!/usr/bin/env bash
# slow: 20 s
# no_asan: one thread that computes for long in plain arrays
# What would break: training on a mesh that continues when ranks die. With a new rank in the dead one's place the parameters
# have the bits of a job in which no rank died.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
gpt="$BUILD_DIR/examples/gpt/gpt --steps 25 --report-every 6 --layers 2 --sample 0"
. "$SOURCE_DIR/tests/train/kill_rank.sh"
unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_RESTARTED

fingerprint()
{
	sed -n 's/.* ranks, fingerprint //p' "$1"
}

# goes_on RANKS OPTION...: each death is replaced
goes_on()
{
	local run job kills=0 line ranks=$1

	shift
	run="timeout -k 5 100 $BUILD_DIR/launch/tuttirun -n $ranks --max-restarts 50 --restart rank $gpt --grow-wait 60 $*"
	rm -rf lines shaken saved
	# shellcheck disable=SC2086
	expect 0 $run
	cp out calm
	rm -rf saved
	[ -n "$(fingerprint calm)" ] || complain "$*: no fingerprint: $(tail -3 calm)"
	mkfifo lines
	# shellcheck disable=SC2086
	$run >lines 2>err &
	job=$!
	while read -r line; do
		echo "$line" >>shaken
		case $line in
		"step "*) [ $kills -lt 3 ] && kill_rank $job $kills gpt && kills=$((kills + 1)) ;;
		esac
	done <lines
	wait $job
	[ $? = 0 ] || complain "$* did not end well: $(tail -5 err)"
	[ $kills = 3 ] || complain "$*: only $kills ranks were killed"
	[ "$(fingerprint shaken)" = "$(fingerprint calm)" ] || complain "$*: other parameters: $(tail -1 shaken), $(tail -1 calm)"
}

goes_on 4 --cp 2 --strategy fsdp --save saved --save-every 7
goes_on 8 --dp 2 --pp 2 --tp 2 --micro-batches 2 --schedule zero_bubble
goes_on 2 --tp 2 --save saved --save-every 7 # one replica: from the checkpoint
exit $failures
