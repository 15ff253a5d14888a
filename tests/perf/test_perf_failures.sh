#!/usr/bin/env bash
# What would break: benchmarks that fail without a word, or with the wrong exit code, or not at all: calls that are
# refused, too little memory, too few descriptors, and a table that nobody can read.
set -u
. "$SOURCE_DIR/tests/perf/common.sh"
perf=$bin/all_reduce_perf

says()
{
	grep -qE -- "$1" err || complain "no '$1' in: $(cat err)"
}

# ---- a bad value: the message names the option
for option in -n --dirty --ranks --load; do
	expect 2 "$perf" $option x
	says "'x' is not a value for $option: give a number from [01] to [0-9]+\.\$"
done

# ---- a call that is refused before anything is measured, and one that is refused then
for how in "-t 2" "--ranks 2"; do
	# shellcheck disable=SC2086
	expect_rows 3 env TUTTI_ALGO=all_reduce=two_level $run "$perf" $how -b 64 -e 64
	says 'TUTTI_ALGO forces two_level for all_reduce, but it needs several nodes'
	# shellcheck disable=SC2086
	expect_rows 3 env TUTTI_ALGO=all_gather=two_level $run "$bin/all_gather_perf" $how -b 64 -e 64
	says 'TUTTI_ALGO forces two_level for all_gather'
done

# ---- no stdout, and one that is full: in the beginning, or for what --help prints
for how in "-t 2" "--ranks 2" "--help"; do
	# shellcheck disable=SC2086
	$run "$perf" $how -b 64 -e 64 -n 2 >/dev/full 2>err
	[ $? = 3 ] || complain "$how > /dev/full"
	says 'stdout.*: No space left on device'
	# shellcheck disable=SC2086
	$run "$perf" $how -b 64 -e 64 -n 2 >&- 2>err
	[ $? = 3 ] || complain "$how >&-"
	says 'stdout.*: Bad file descriptor'
done
expect_rows 0 $run "$perf" -t 2 -b 64 -e 64 -n 2 <&-
$run "$perf" --ranks 2 -b 64 -e 64 -n 2 >out 2>&- <&- || complain "neither stdin nor stderr: $(cat out)"
# A reader that has seen enough: all ranks end, and nobody says a word. The sweep has a million sizes. Everybody holds
# the fifo: its end shows that nobody is left.
mkfifo alive
for how in "-t 3" "--ranks 3"; do
	timeout 90 cat alive &
	# shellcheck disable=SC2086
	$run "$perf" $how -b 64 -e 4M -i 4 -n 1 -J "$scratch/head.json" 2>err 9>alive | head -1 >out
	code=${PIPESTATUS[0]}
	[ "$code" = 3 ] || complain "$how | head -1: exit code $code ($(cat err))"
	wait $! || complain "ranks are left after $how | head -1"
	[ ! -s err ] || complain "$how | head -1 says: $(cat err)"
	grep -q '^# all_reduce_perf' out || complain "$how | head -1: $(cat out)"
	[ ! -e head.json ] || complain "a run without a table leaves its JSON"
done

if grep -q '^CMAKE_C_FLAGS:.*-fsanitize' "$BUILD_DIR/CMakeCache.txt"; then
	exit $failures             # sanitizers need memory and files of their own
fi

# ---- memory that is refused in the middle: no rank waits for the one that has none
for options in "" "--percentiles"; do
	# shellcheck disable=SC2086
	expect_rows 3 timeout -k 5 60 bash -c 'ulimit -v 500000; exec "$@"' - "$perf" -t 2 -b 128M -n 1 $options
	says 'rank [01]: the system gives no 128.0 MiB for a buffer'
done
for how in "-t 2" "--ranks 2"; do
	# shellcheck disable=SC2086
	expect_rows 3 timeout -k 5 60 bash -c 'ulimit -v 300000; exec "$@"' - "$perf" $how --zero-copy -b 128M -n 1
	says 'of [0-9]{9} bytes on each of 2 ranks: rank 0 has failed: .* [0-9]{9} bytes of shared memory: Cannot allocate'
	says '\(errno 12\); this process may map 307200000 bytes in all: raise .ulimit -v'
done

# ---- descriptors: all is well, or the limit is named, with its number
for files in 8 10 12 14 16 20 24 28 32 48 64; do
	for how in "-t 4" "--ranks 4"; do
		# shellcheck disable=SC2086
		timeout -k 5 60 bash -c 'ulimit -n '$files'; exec "$@"' - "$perf" $how -b 64 -e 64 -n 1 >out 2>err
		code=$?
		[ $code = 0 ] && continue
		[ $code = 3 ] || [ $code = 1 ] || complain "$files files, $how: exit code $code ($(cat err))"
		says " may have $files open.*raise .ulimit -n"
		grep -qE 'has died|is gone|refuses the connection|closed its connection' err && complain "$files files, $how: $(cat err)"
	done
done
expect_rows 0 $run "$perf" -t 4 -b 64 -e 64 -n 1
exit $failures
