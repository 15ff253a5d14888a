#!/usr/bin/env bash
# slow: 9 s
# no_asan: one thread that computes for long in plain arrays
# What would break: a mesh that shrinks when ranks die and no new ones come in time. A rank of a replica that has left ends, or
# misses the next death, or its own is missed; the place that it takes has no part of the model, or no file for losses.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
gpt="$BUILD_DIR/examples/gpt/gpt --steps 60 --report-every 1 --layers 2 --sample 0 --dump-loss"
. "$SOURCE_DIR/tests/train/kill_rank.sh"
unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_RESTARTED

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
		$gpt shaken.loss --tp 2 --grow-wait $seconds >steps 2>&1 3>&- &
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
expect 0 $gpt calm.loss
shrinks 6 1 "4 4 2" 1 0 3 # without 1 rank 4 is left over, and takes the place of 0; rank 2 is until the end
left_over 2
shrinks 4 3 "2 4" 1 +2 # rank 2 is left over, and dies: if the others do not hear of it none comes in
left_over 1
exit $failures
