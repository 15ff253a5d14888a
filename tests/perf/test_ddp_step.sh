#!/usr/bin/env bash
# slow: 3 s
# no_asan: tests/train runs the steps of a trainer under ASan
# What would break: a step under load that nobody can measure, busy processes that are left, a flag that is passed over.
set -u
. "$SOURCE_DIR/tests/perf/common.sh"
tuttirun="$BUILD_DIR/launch/tuttirun"

for load in 0 2; do
	expect 0 env "LOAD_OF=$$" timeout -k 5 100 "$tuttirun" -n 2 "$BUILD_DIR/perf/ddp_step" --rounds 2 --samples 1 --load $load
	grep -q "^# 2 ranks, $load busy processes, 1 samples, 2 rounds" out || complain "the head: $(cat out)"
	awk '!/^#/ { n++; if (!($1 > 0 && $2 > 0 && $3 > 0 && $4 > 0)) bad = 1 } END { exit bad || n != 1 }' out ||
		complain "the row: $(cat out)"
	left=$(grep -lzx "LOAD_OF=$$" /proc/[0-9]*/environ 2>/dev/null)
	[ -z "$left" ] || complain "busy processes are left: $left"
done
refuses ddp_step "--rounds 0" "--rounds 1001" "--samples 257" "--load x" "--load -1" --no-such-flag \
	"--steps 5" "--batch 64" "--way ddp --load 8" "--way mirrored --rounds 2" 9
exit $failures
