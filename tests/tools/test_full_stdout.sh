#!/usr/bin/env bash
# What would break: a script that takes half an answer for a whole one, since the disk was full and nobody said so.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
unset WORLD_SIZE RANK

# told PROGRAM WORD...: an exit code that is not 0, and one message that names the program and the reason.
told()
{
	local program=${1##*/} code
	timeout -k 5 60 "$@" >/dev/full 2>err
	code=$?
	[ $code != 0 ] && [ $code -lt 124 ] || complain "$* > /dev/full: exit code $code"
	grep -qE "^$program: .*stdout.*: No space left on device" err || complain "$* > /dev/full says: $(cat err)"
	[ "$(wc -l <err)" = 1 ] || complain "$* > /dev/full says it more than once: $(cat err)"
	timeout -k 5 60 "$@" >&- 2>err
	code=$?
	[ $code != 0 ] && [ $code -lt 124 ] || complain "$* >&-: exit code $code"
	grep -qE "^$program: .*stdout.*: Bad file descriptor" err || complain "$* >&- says: $(cat err)"
}

told "$BUILD_DIR/launch/tuttirun" --help
for program in limits all_reduce_perf barrier_perf; do
	told "$BUILD_DIR/perf/$program" --help
done
told "$BUILD_DIR/perf/scale_point" threads 2
for program in plan trace top info report; do
	told "$BUILD_DIR/tools/tutti-$program" --help
done
told "$BUILD_DIR/tools/tutti-plan" show all_reduce ring 4
told "$BUILD_DIR/tools/tutti-plan" check all_reduce 2
told "$BUILD_DIR/tools/tutti-plan" explain all_reduce 1M --ranks 4
told "$BUILD_DIR/tools/tutti-plan" simulate all_reduce 1K --ranks 4
told "$BUILD_DIR/tools/tutti-top" --once
told "$BUILD_DIR/tools/tutti-info"
# What was wrong without that keeps its exit code.
"$BUILD_DIR/tools/tutti-plan" show nonsense >/dev/full 2>err
[ $? = 2 ] || complain "a line that cannot be understood: $(cat err)"
exit $failures
