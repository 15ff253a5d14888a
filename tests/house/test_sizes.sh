#!/usr/bin/env bash
# What would break: code that can be read in an afternoon.
set -u
cd "$SOURCE_DIR" || exit 1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

# The check sees a long function and a long file, and leaves the longest allowed ones alone.
function_of()
{
	printf 'static int f(void)\n{\n'
	yes '	;' | head -n "$(($1 - 2))"
	printf '}\n'
}
mkdir -p "$scratch/core"
function_of 70 >"$scratch/core/a.c"
tests/house/sizes "$scratch" || failures=1
function_of 71 >"$scratch/core/a.c"
tests/house/sizes "$scratch" >/dev/null && echo "a long function went unseen" && failures=1
yes 'int a;' | head -n 601 >"$scratch/core/a.c"
tests/house/sizes "$scratch" >/dev/null && echo "a long file went unseen" && failures=1

tests/house/sizes . || failures=1
exit $failures
