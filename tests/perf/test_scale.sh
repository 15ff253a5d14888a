#!/usr/bin/env bash
# slow: 2 s
# no_asan: it times or compares programs that other tests run here, too
# What would break: the table of what a rank costs: points that are missing, and figures that nobody measured.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
unset WORLD_SIZE RANK

scale="timeout -k 5 100 $SOURCE_DIR/perf/scale --build $BUILD_DIR"
$scale --ranks 2,5 --rounds 1 --out result >out 2>&1 || complain "scale: $(cat out)"
[ "$(grep -cE '^\| [25] \| (processes|threads) \|( -?[0-9.]+ \|){8}$' result/scale.md)" = 4 ] || complain "the table: $(cat out)"
# Shared memory was found, and a rank's share of it is not more than its budget (8 MiB and 33 KiB).
awk -F, 'NR > 1 && !($4 > 0 && $7 > 100 && $7 < 8226 && $8 > 0 && $9 > 0 && $10 > 0 && $11 > 0) { bad = 1 } END { exit bad || NR != 5 }' \
	result/scale.csv || complain "the figures: $(cat result/scale.csv)"
# 64 ranks join, and none of them takes more than its window, its recorder and a little. It is promised that 2 cores that have
# nothing else to do are ready within 1 s. How long it takes where others compute says something of them, so the bound is what
# 2 cores can do in 1 s: 2 s of processor time for all 64. (4 s where the compiler was told not to
# optimise.) A process has two descriptors for each other rank and a few; a thread a few, as many as with 8.
if ! grep -q '^CMAKE_C_FLAGS:.*-fsanitize' "$BUILD_DIR/CMakeCache.txt"; then
	all_ms=2000
	grep -q '^CMAKE_BUILD_TYPE:.*Rel' "$BUILD_DIR/CMakeCache.txt" || all_ms=4000
	for kind in processes threads; do
		timeout -k 5 100 "$BUILD_DIR/perf/scale_point" $kind 64 >point 2>&1 || complain "64 $kind: $(cat point)"
		python3 -c 'import json, sys
p = json.loads(sys.stdin.read().splitlines()[-1])
sys.exit(not (p["ranks"] == 64 and 0 < p["init_ms"] and 0 < p["init_cpu_ms"] < float(sys.argv[1]) / 64 and 0 < p["init_KiB"] < 8226
              and 0 < p["used_KiB"] < 8226 and 0 < p["descriptors"] < (32 + 2 * 64 if p["kind"] == "processes" else 32)))' \
			$all_ms <point || complain "64 $kind: $(cat point)"
	done
fi
for words in "--ranks 1" "--ranks x" "--ranks 129" "--out /proc/nowhere" "--rounds 0" "--kinds fibers" "--build nowhere"; do
	# shellcheck disable=SC2086
	$scale $words >out 2>&1
	[ $? = 2 ] || complain "$words is not refused"
	grep -q '^usage: scale' out || complain "no usage line after $words"
done
for words in "processes" "processes 1" "threads 100000" "fibers 2" "processes 2x" "threads +2"; do
	# shellcheck disable=SC2086
	"$BUILD_DIR/perf/scale_point" $words >out 2>&1
	[ $? = 2 ] || complain "scale_point $words is not refused"
done
exit $failures
