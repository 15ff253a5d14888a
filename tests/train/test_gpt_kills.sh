#!/usr/bin/env bash
# slow: 4 s
# no_asan: one thread that computes for long in plain arrays
# What would break: training that continues when ranks die. A rank that is started again gets the others' parameters, no
# step is lost or done twice, and the parameters have the bits of a job in which no rank died.
set -u
gpt="$BUILD_DIR/examples/gpt/gpt --steps 61 --grow-wait 60"
run="timeout -k 5 100 $BUILD_DIR/launch/tuttirun -n 3 --max-restarts 50 --restart rank"
. "$SOURCE_DIR/tests/scratch.sh"
unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_RESTARTED

fingerprint()
{
	sed -n 's/.*on 3 ranks, fingerprint //p' "$1"
}

# The launcher's processes without its guard: the ranks, in any order.
kill_rank()
{
	local launcher ranks=() child

	launcher=$(cat "/proc/$1/task/$1/children") # timeout's
	for child in $(cat /proc/${launcher% }/task/${launcher% }/children); do
		[ "$(cat "/proc/$child/comm")" = gpt ] && ranks+=("$child")
	done
	[ ${#ranks[@]} -gt 0 ] && kill -9 "${ranks[$2 % ${#ranks[@]}]}"
}

expect 0 $run $gpt
cp out calm
[ -n "$(fingerprint calm)" ] || complain "no fingerprint: $(tail -3 calm)"
# Kills it at any moment after a line of its first steps, or of later ones, but not at the end, when others may be done.
mkfifo lines
$run $gpt >lines 2>err &
job=$!
kills=0
while read -r line; do
	echo "$line" >>shaken
	case $line in
	"step "*) [ $kills -lt 3 ] && kill_rank $job $kills && kills=$((kills + 1)) ;;
	esac
done <lines
wait $job
[ $? = 0 ] || complain "it did not end well: $(tail -5 err)"
[ $kills = 3 ] || complain "only $kills ranks were killed"
[ "$(grep -c 'started again' err)" -ge 3 ] || complain "they were not started again: $(cat err)"
[ "$(fingerprint shaken)" = "$(fingerprint calm)" ] || complain "other parameters: $(tail -1 shaken), $(tail -1 calm)"
exit $failures
