#!/usr/bin/env bash
# What would break: patches in tests/mutants that no longer fit the code, or that name a test that is gone.
# (script/mutants runs them; this only sees that it still can.)
set -u
cd "$SOURCE_DIR" || exit 1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0
for patch in tests/mutants/*.patch; do
	[ -e "$patch" ] || continue
	if ! patch -p1 --dry-run -s -f -r "$scratch/rejects" <"$patch"; then
		echo "$patch does not apply"
		failures=1
	fi
	tests=$(sed -n '/^diff /q; /^--- /q; s/^test: *//p' "$patch")
	[ -n "$tests" ] || { echo "$patch names no test"; failures=1; }
	for test in $tests; do
		[ -e "tests/$test.c" ] || { echo "$patch names $test, which is not there"; failures=1; }
	done
done
exit $failures
