#!/usr/bin/env bash
# slow: 20 s
# no_asan: one thread that computes for long in plain arrays
# What would break: training on a mesh that continues when ranks die. With a new rank in the dead one's place the parameters
# have the bits of a job in which no rank died; without one a replica is given up, and losses stay.
set -u
gpt="$BUILD_DIR/examples/gpt/gpt --steps 25 --report-every 6 --layers 2 --sample 0"
. "$SOURCE_DIR/tests/scratch.sh"
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

# ---- No rank comes in a dead one's place in time: replicas leave, and ranks of them stand by.
open_gate()
{
	: >open
	exec 3>&-
}

# shrinks RANKS SECONDS SIZES VICTIM...: replicas of two ranks. The victims die one after the other, and SIZES are how many
# ranks train then. What is started in their place waits at a gate, which is open from the VICTIM "+N" on.
shrinks()
{
	local ranks=$1 seconds=$2 sizes=$3 victims=("${@:4}") killed=0 has_regrouped=1 job line

	rm -rf steps gate open over
	mkfifo steps gate
	exec 3<>gate
	# shellcheck disable=SC2016
	timeout -k 5 100 "$BUILD_DIR/launch/tuttirun" -n $ranks --max-restarts 9 --restart rank \
		sh -c '[ -z "${TUTTI_RESTARTED:-}" ] || [ -e open ] || cat gate; [ -e over ] || exec "$@"' gpt \
		$gpt --tp 2 --steps 60 --report-every 1 --grow-wait $seconds --dump-loss shaken.loss >steps 2>&1 3>&- &
	job=$!
	: >shaken
	while read -r line; do
		echo "$line" >>shaken
		case $line in
		"goes on at step "*) has_regrouped=1 ;;
		"parameters are "*)
			: >over
			open_gate
			;;
		"step "*)
			[ $has_regrouped = 1 ] && [ $killed -lt ${#victims[@]} ] || continue
			[[ ${victims[killed]} == +* ]] && open_gate
			kill_number $job "${victims[killed++]#+}"
			has_regrouped=0
			;;
		esac
	done <steps
	wait $job
	[ $? = 0 ] || complain "a job that lost ranks did not end well: $(cat shaken)"
	[ "$(sed -n 's/^goes on at step [1-5]*[0-9] on \(.*\) ranks$/\1/p' shaken | xargs)" = "$sizes" ] ||
		complain "not $sizes ranks train: $(cat shaken)"
	# A step that is over when a rank dies may lack its line.
	awk '
		FNR == NR { calm[$1] = $2; next }
		calm[$1] - $2 < 2e-5 && $2 - calm[$1] < 2e-5 { good++; last = $1; next }
		{ exit bad = 1 }
		END { exit bad || good < 57 || last != 59 }' calm.loss shaken.loss ||
		complain "other losses: $(paste calm.loss shaken.loss)"
}

# left_over COUNT: so often a rank had no place
left_over()
{
	[ "$(grep -c "a rank is left over" shaken)" = "$1" ] || complain "not $1 times a rank is left over: $(cat shaken)"
}

# shellcheck disable=SC2086
expect 0 $gpt --steps 60 --dump-loss calm.loss
shrinks 6 1 "4 4 2" 1 0 3 # without 1 rank 4 is left over, and takes the place of 0; rank 2 is until the end
left_over 2
shrinks 4 3 "2 4" 1 +2 # rank 2 is left over, and dies: if the others do not hear of it none comes in
left_over 1
exit $failures
