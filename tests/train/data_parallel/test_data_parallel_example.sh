#!/usr/bin/env bash
# What would break: examples/data_parallel, and its losses, which are those of docs/tutorial.md however many replicas there
# are.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
program="timeout -k 5 100 $BUILD_DIR/examples/data_parallel/data_parallel"

cat >expected <<'END'
step 100  loss 0.066
step 200  loss 0.052
step 300  loss 0.030
step 400  loss 0.023
END
for replicas in 1 2 4; do
	for way in "" --mirrored; do
		# shellcheck disable=SC2086
		$program --replicas $replicas $way >out 2>&1 || complain "$replicas $way: $(cat out)"
		head -4 out | cmp -s - expected || complain "$replicas $way: $(cat out)"
		grep -qE '^50 other samples  loss 0\.0[0-9]+$' out || complain "$replicas $way tests: $(cat out)"
	done
done
for wrong in "--replicas 0" "--replicas 65" "--replicas x" "--mirror-me"; do
	# shellcheck disable=SC2086
	$program $wrong >out 2>&1
	[ $? = 2 ] || complain "$wrong is not refused: $(cat out)"
	[ -s out ] || complain "$wrong: nothing is said"
done
exit $failures
