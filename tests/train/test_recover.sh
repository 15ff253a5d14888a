#!/usr/bin/env bash
# slow: 15 s
# no_asan: kills ranks by the moment
# What would break: a program that goes on in place when its ranks are killed, at any moment, also while the others
# recover. No step is lost, and the loss at the end has the bits of a job in which no rank died.
set -u
program="$BUILD_DIR/examples/recover/recover"
. "$SOURCE_DIR/tests/scratch.sh"
unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_RESTARTED TUTTI_MAX_RESTARTS
export TUTTI_TIMEOUT_MS=30000

# run STRATEGY RANKS STEPS OUT: starts it in the background as $job, with its output in OUT and err.
run()
{
	timeout -k 5 100 "$BUILD_DIR/launch/tuttirun" -n "$2" --max-restarts 100 --restart rank "$program" --strategy "$1" --steps "$3" >"$4" 2>err &
	job=$!
}

# kill_rank NUMBER: one of those that live, in any order.
kill_rank()
{
	local launcher ranks=() child

	launcher=$(cat "/proc/$job/task/$job/children") # timeout's
	for child in $(cat /proc/${launcher% }/task/${launcher% }/children); do
		[ "$(cat "/proc/$child/comm" 2>/dev/null)" = recover ] && ranks+=("$child")
	done
	[ ${#ranks[@]} -gt 0 ] && kill -9 "${ranks[$1 % ${#ranks[@]}]}" 2>/dev/null
}

# until_more PATTERN COUNT: more than so many lines of err are like that.
until_more()
{
	for _ in $(seq 2000); do
		[ "$(grep -c "$1" err)" -gt "$2" ] && return
		sleep 0.01
	done
}

# A second rank dies while the others recover from the first one's death: as soon as that one is started again.
kill_again()
{
	local before
	before=$(grep -c 'started again' err)
	kill_rank "$1" || return
	until_more 'started again' "$before"
	[ "$2" = 0 ] || sleep "0.0$2"
	kill_rank $(($1 + 1))
}

# shake STRATEGY RANKS STEPS MOST: kills at any moment after a line of the first steps, never at the end, when others may be done.
# From the third one on two ranks die one after the other.
shake()
{
	local strategy=$1 n=$2 kills=0 gone_on
	run "$strategy" "$n" "$3" calm
	wait $job || complain "$strategy, $n ranks, undisturbed: $(tail -3 err)"
	rm -f lines shaken
	mkfifo lines
	run "$strategy" "$n" "$3" lines
	while read -r line; do
		echo "$line" >>shaken
		[ $kills -lt "$4" ] || continue
		case $line in
		"step 0 "*) ;;
		"step "*)
			gone_on=$(grep -c 'go on from' err)
			if [ $((kills % 3)) = 2 ]; then kill_again $kills $((RANDOM % 10)); else kill_rank $kills; fi
			kills=$((kills + 1))
			until_more 'go on from' "$gone_on" # if all had died, nobody would go on
			;;
		esac
	done <lines
	wait $job || complain "$strategy, $n ranks: it did not end well: $(tail -5 err)"
	[ $kills = "$4" ] || complain "$strategy, $n ranks: only $kills kills"
	[ "$(grep -c 'started again' err)" -ge "$4" ] || complain "they were not started again: $(cat err)"
	# Two that die one after the other may be neighbours, of whom one has not got its part back yet.
	[ "$4" -gt 2 ] || ! grep 'from the beginning' err || complain "$strategy, $n ranks: a step was lost"
	[ "$(tail -1 shaken)" = "$(grep '^final' calm)" ] ||
		complain "$strategy, $n ranks: another end: $(tail -1 shaken), $(tail -1 calm)"
}

# Enough steps for the kills, and few enough for 5 ranks on 2 busy cores.
shake ddp 2 2000 2
shake zero1 2 1500 2
shake zero2 4 500 2
shake fsdp 3 500 2
shake zero1 3 800 6
shake fsdp 5 300 4
exit $failures
