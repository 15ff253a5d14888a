#!/usr/bin/env bash
# slow: 40 s
# What would break: a sweep that is killed at any moment and leaves processes, loses a trial, or counts one twice; one that
# Ctrl-C does not end; two at once in a folder.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
. "$SOURCE_DIR/tests/tools/sweep_lib.sh"
seed=${SEED:-$RANDOM}
echo "SEED=$seed"
RANDOM=$seed

# ---- kill -9 at random moments; each trial starts a process that would outlive it, and was killed
# with half a row.
line="one.json --seed 5 --trials 12 --parallel 3 --out a -- $fake {dir} 30 {lr} child pause:5"
kills=0 ended=0
for _ in $(seq 12); do
	$sweep $line >out 2>err & pid=$!
	# The timeout is $pid, and the sweep is below it.
	until_true pgrep -P $pid >child || break
	sleep 0.$(printf %03d $((RANDOM % 1000)))
	kill -KILL "$(cat child)" 2>/dev/null && kills=$((kills + 1))
	wait $pid 2>/dev/null
	none_left
	for rows in a/trial_*/metrics.jsonl; do
		[ ! -e "$rows" ] || printf '{"step":1,"lo' >>"$rows"
	done
	[ "$(grep -cs '"end"' a/journal.jsonl)" = 12 ] || ended=$((ended + 1))
done
echo "$kills of 12 were killed, $ended before all trials had ended"
expect 0 $sweep $line
counted_once a 12
none_left
expect 0 $sweep one.json --seed 5 --trials 12 --parallel 1 --out b -- $fake {dir} 30 {lr}
results()
{
	sed -nE 's/.*"end", "trial": ([0-9]+), "state": "([a-z]+)", "value": ([0-9.]+).*/\1 \2 \3/p' "$1/journal.jsonl" | sort -n
}
results b >whole
results a | cmp - whole || complain "SEED=$seed: other results than without the kills: $(results a)"

# ---- of three that run, none is counted before it ends
: >gate
waits="one.json --seed 5 --trials 3 --parallel 3 --grace 20"
all_run() { [ "$(cat "$1"/trial_000?/metrics.jsonl 2>/dev/null | wc -l)" = 3 ]; }
# begin DIR WORD...: a sweep of three trials, each of which waits behind its first step; its number is in $job.
begin()
{
	local out=$1
	shift
	printf x >gate
	env -- $sweep $waits --out "$out" -- $fake {dir} 3 {lr} step:gate "$@" >out 2>err & job=$!
	until_true all_run "$out"
	pid=$(pgrep -P $job)
}
begin c child
expect 1 timeout -k 5 100 "$BUILD_DIR/tools/tutti-sweep" $waits --out c -- $fake {dir} 3 {lr} step:gate child
said '^tutti-sweep: another tutti-sweep works in c; '
kill -KILL "$pid"
wait $job 2>/dev/null
none_left
[ "$(grep -c '"end"' c/journal.jsonl)" = 0 ] || complain "an end of a trial that was killed: $(cat c/journal.jsonl)"
printf xxx >gate
expect 0 $sweep $waits --out c -- $fake {dir} 3 {lr} step:gate child
counted_once c 3
none_left

# ---- Ctrl-C and its like end all, and say how to go on; a second one does not wait
for number in INT TERM HUP; do
	begin d_$number child
	kill -$number "$pid"
	wait $job
	code=$?
	[ $code = $((128 + $(kill -l $number))) ] || complain "SIG$number: exit code $code: $(cat err)"
	said "^tutti-sweep: SIG$number ended it after 0 of 3 trials\. The same command goes on: tutti-sweep one.json --seed 5 .* --out d_$number -- .*'\{lr\}'"
	none_left
	[ ! -s out ] || complain "a table of nothing: $(cat out)"
	printf xxx >gate
	expect 0 $sweep $waits --out d_$number -- $fake {dir} 3 {lr} step:gate child
	counted_once d_$number 3
done
begin e stay
kill -INT "$pid"
until_true grep -qsE '^tutti-sweep: SIGINT: 3 trials got SIGTERM, and 20 s to end; a second signal kills\.$' err
kill -INT "$pid"
wait $job
none_left
[ "$(grep -c '"end"' e/journal.jsonl)" = 0 ] || complain "an end of a trial that was killed: $(cat e/journal.jsonl)"

# ---- the guard is killed: trials go on, and begin
begin g child
guard=$(pgrep -P "$pid" -f tools/tutti-sweep)
kill -KILL "$guard"
printf xxx >gate
wait $job
[ $? = 0 ] || complain "without its guard: $(cat err)"
expect 0 $sweep $waits --trials 5 --out g -- $fake {dir} 3 {lr} step:gate child
counted_once g 5
none_left

# ---- the guard and the sweep are killed: the kernel ends the trials
begin h
kill -KILL "$(pgrep -P "$pid" -f tools/tutti-sweep)"
kill -KILL "$pid"
wait $job 2>/dev/null
none_left

# ---- a full disk, here a file that may not grow: the trials are ended, and the same command goes on when there is room
line="one.json --seed 5 --trials 9 --parallel 2 --out f -- $fake {dir} 3 {lr} child"
expect 1 sh -c "ulimit -f 2; exec $sweep $line"
said '^tutti-sweep: f/journal.jsonl could not be written: File too large\. The trials were ended; '
none_left
expect 0 $sweep $line
counted_once f 9
exit $failures
