#!/usr/bin/env bash
# slow: 15 s
# no_asan: kills ranks by the moment
# What would break: a program that goes on in place when its ranks are killed, at any moment, also while the others
# recover. No step is lost, and the loss at the end has the bits of a job in which no rank died.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
program="$BUILD_DIR/tests/mortal_main" # examples/recover
unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_RESTARTED TUTTI_MAX_RESTARTS
export TUTTI_TIMEOUT_MS=30000

# run STRATEGY RANKS STEPS DEATHS OUT
run()
{
	DEATHS=$4 timeout -k 5 300 "$BUILD_DIR/launch/tuttirun" -n "$2" --max-restarts 100 --restart rank \
		"$program" --strategy "$1" --steps "$3" >"$5" 2>err
}

# shake STRATEGY RANKS DEATHS: ranks die at step 40, 80 and so on, long before the end, when others may be done.
shake()
{
	local strategy=$1 n=$2 steps=$((40 * $3 + 100))
	rm -f death.*
	run "$strategy" "$n" "$steps" 0 calm || complain "$strategy, $n ranks, undisturbed: $(tail -3 err)"
	run "$strategy" "$n" "$steps" "$3" shaken || complain "$strategy, $n ranks: it did not end well: $(tail -5 err)"
	[ "$(find . -name 'death.*[0-9]' | wc -l)" = "$3" ] || complain "$strategy, $n ranks: not $3 deaths: $(ls)"
	[ "$(grep -c 'it is started again' err)" = "$(find . -name 'death.*' | wc -l)" ] ||
		complain "$strategy, $n ranks: not all were started again: $(ls) $(cat err)"
	# Two that die one after the other may be neighbours, of whom one has not got its part back yet.
	[ "$3" -gt 2 ] || ! grep 'from the beginning' err || complain "$strategy, $n ranks: a step was lost"
	[ "$(tail -1 shaken)" = "$(grep '^final' calm)" ] ||
		complain "$strategy, $n ranks: another end: $(tail -1 shaken), $(tail -1 calm)"
}

shake ddp 2 2
shake zero1 2 2
shake zero2 4 2
shake fsdp 3 2
shake zero1 3 6
[ -e death.2.again ] || complain "no two ranks died at once: $(ls)"
shake fsdp 5 4
exit $failures
