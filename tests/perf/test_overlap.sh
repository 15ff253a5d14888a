#!/usr/bin/env bash
# slow: 3 s
# no_asan: tests/train/blocks runs the calls under ASan
# What would break: hidden communication that nobody can measure, a flag that is passed over.
set -u
. "$SOURCE_DIR/tests/perf/common.sh"
tuttirun="$BUILD_DIR/launch/tuttirun"

for flags in "" "--scatter" "--zero-copy" "--zero-copy --scatter --load 1"; do
	# shellcheck disable=SC2086
	expect 0 timeout -k 5 100 "$tuttirun" -n 2 "$BUILD_DIR/perf/overlap" --rounds 2 --rows 64 --columns 20 $flags
	grep -q "^# .*, 2 ranks, blocks of 64 x 1024 f32, 16 columns, [01] busy processes, 2 rounds" out || complain "the head: $(cat out)"
	awk '!/^#/ { n++; if (!($1 > 0 && $2 > 0 && $3 > 0 && NF == 5)) bad = 1 } END { exit bad || n != 1 }' out ||
		complain "the row: $(cat out)"
done
refuses overlap "--rounds 0" "--rows 0" "--columns 7" "--load x" --no-such-flag 5
exit $failures
