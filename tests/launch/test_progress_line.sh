#!/usr/bin/env bash
# slow: 3 s
# What would break: tuttirun's line of progress on a terminal: what it says of ranks and hosts, and that it is gone when something
# is printed.
set -u
. "$SOURCE_DIR/tests/launch/launchers.sh"
needs script script
script -qec true /dev/null >/dev/null 2>why || { echo "there are no pseudo-terminals here: $(head -n 1 why)"; exit 77; }

# Each rank waits until the line is there, and its program as long, so that it can be told whose word it was.
mkfifo never
cat >wait_for <<-'END'
	"$@" & program=$!
	for _ in $(seq 3000); do grep -qE "2 of 2 ranks run, 2 have joined, [0-9]+:[0-9]{2}" typed && exec kill -9 $program; sleep 0.02; done
	exit 9
END
: >typed
expect 0 timeout 90 script -qfec "$BUILD_DIR/launch/tuttirun --progress -n 2 sh wait_for $BUILD_DIR/tests/trace_main wait:0:never wait:1:never" typed
grep -qE "have joined.*[^ ]*\[K" typed || complain "the line stays: $(tail -c 80 typed)"

# Also a program that has joined and ended before tuttirun hears of it, as rank 1, the last to be started, stops it meanwhile.
# script shall not see that: a shell is between them.
cat >joins <<-'END'
	[ "$RANK" = 0 ] || kill -STOP $PPID
	for _ in $(seq 3000); do grep -q '^State:.T' /proc/$PPID/status && break; sleep 0.01; done
	"$@"
	: >"ended.$RANK"
	for _ in $(seq 3000); do [ -e ended.0 ] && [ -e ended.1 ] && break; sleep 0.01; done
	[ "$RANK" = 0 ] || kill -CONT $PPID
	for _ in $(seq 3000); do grep -qE "2 of 2 ranks run, 2 have joined, [0-9]+:[0-9]{2}" typed && exit; sleep 0.02; done
	exit 9
END
: >typed
expect 0 timeout 90 script -qfec "$BUILD_DIR/launch/tuttirun --progress -n 2 sh joins $program; exit \$?" typed

# Ranks of hosts tell their own tuttirun that they have joined.
cat >wait_for <<-'END'
	for _ in $(seq 3000); do grep -qE "2 of 2 hosts run, [0-9]+:[0-9]{2}" typed && exit; sleep 0.02; done
	exit 9
END
: >typed
expect 0 timeout 90 script -qfec "$BUILD_DIR/launch/tuttirun --progress -n 1 --hosts localhost,localhost sh wait_for" typed
exit $failures
