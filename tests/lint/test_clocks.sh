#!/usr/bin/env bash
# What would break: tests that end too early beside busy processes: what bounds them is tests/limit.h, not alarm(), which goes
# by the clock alone (mortal_main.c ends itself at random moments). And waits that end too early or never when somebody sets the clock. What is built knows
# CLOCK_MONOTONIC only (core/clock.h); waits with a date of the calendar are not used at all. (core/ticks.c
# asks for the date once, for readers of a trace, and train/metrics/logs.c for readers of a log.)
set -u
cd "$SOURCE_DIR" || exit 1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0
calendar='CLOCK_REALTIME|CLOCK_TAI|\bgettimeofday\b|\btime\(|\btimespec_get\b|\bftime\b|\butime\b'
calendar="$calendar"'|pthread_(cond|mutex|rwlock)_timed[a-z]*|\bsem_timedwait\b|\bmq_timed[a-z]*|\balarm\(|\bsetitimer\b'

# Prints what uses the calendar in the files of a tree.
uses()
{
	(cd "$1" && grep -rnE "$calendar" --include='*.c' --include='*.h' core cuda transport collectives \
		train rpc launch tools examples include 2>/dev/null) | grep -v -e '^core/ticks.c:.*CLOCK_REALTIME)' \
		-e '^train/metrics/logs.c:.*CLOCK_REALTIME)' | grep .
}

# The check sees what it is for.
mkdir -p "$scratch/core"
for use in 'clock_gettime(CLOCK_REALTIME, &t);' 'now = time(NULL);' 'pthread_cond_timedwait(&c, &m, &t);' \
	'gettimeofday(&t, NULL);' 'sem_timedwait(&s, &t);'; do
	echo "$use" >"$scratch/core/a.c"
	uses "$scratch" >/dev/null || { echo "unseen: $use"; failures=1; }
done
echo 'clock_gettime(CLOCK_MONOTONIC, &t); run_time(x); /* the time (of day) */' >"$scratch/core/a.c"
uses "$scratch" && { echo "that was no use"; failures=1; }

if grep -rnE '\b(alarm|setitimer)\(' --include='*.c' --include='*.h' --exclude-dir=perf tests |
	grep -vE '^tests/(limit\.h|limits/test_hang_limit\.c|core/test_net\.c|train/mortal_main\.c):'; then
	echo "^ goes by the clock; tests/limit.h counts what a test computes"
	failures=1
fi
if uses .; then
	echo "^ depends on the calendar's clock, which may jump"
	failures=1
fi
exit $failures
