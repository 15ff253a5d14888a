#!/usr/bin/env bash
# What would break: code that can be read in an afternoon.
set -u
cd "$SOURCE_DIR" || exit 1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

# The check sees a long function, file and line, and leaves the longest allowed ones alone.
function_of()
{
	printf 'static int f(void)\n{\n'
	yes '	;' | head -n "$(($1 - 2))"
	printf '}\n'
}
mkdir -p "$scratch/core"
{ echo '/* f. */'; function_of 70; } >"$scratch/core/a.c"
tests/house/sizes "$scratch" || failures=1
function_of 3 >"$scratch/core/a.c"
tests/house/sizes "$scratch" | grep -q 'core/a.c does not open with a comment' ||
	{ echo "a file that does not say what it is went unseen"; failures=1; }
{ echo "/* f. */"; function_of 71; } >"$scratch/core/a.c"
tests/house/sizes "$scratch" >/dev/null && echo "a long function went unseen" && failures=1
mkdir -p "$scratch/tests/house"
printf '# Long.\ncore/a.c:f a reason\n' >"$scratch/tests/house/long.txt"
tests/house/sizes "$scratch" || { echo "a long function was not excused"; failures=1; }
echo 'core/gone.c a reason' >>"$scratch/tests/house/long.txt"
tests/house/sizes "$scratch" | grep -q '^tests/house/long.txt: core/gone.c is not long: remove this line$' ||
	{ echo "a line without a long file went unseen"; failures=1; }
tests/house/sizes "$scratch" >/dev/null && echo "a line without a long file did no harm" && failures=1
rm "$scratch/tests/house/long.txt"
{ echo '/* a. */'; yes 'int a;' | head -n 600; } >"$scratch/core/a.c"
tests/house/sizes "$scratch" >/dev/null && echo "a long file went unseen" && failures=1
# line COLUMNS: with a tab in it
line()
{
	printf '/* %01d\t%0*d */\n' 0 "$(($1 - 11))" 0
}
line 100 >"$scratch/core/a.c"
tests/house/sizes "$scratch" || failures=1
line 101 >"$scratch/core/a.c"
tests/house/sizes "$scratch" | grep -q '^core/a.c:1 has 101 columns; the limit is 100$' ||
	{ echo "a long line went unseen"; failures=1; }

# It sees a struct of 41 members, however they are written, and leaves one of 40 alone.
struct_of()
{
	printf 'struct large {\n\tchar *first, text[2]; /* a; b */\n\tvoid (*call)(int a, int b);\n'
	printf '\tstruct { int p, q; } point; /* one */\n\tunion { int r; long s; };\n'
	yes '	int *a;' | head -n "$(($1 - 6))"
	printf '};\n'
}
rm "$scratch/core/a.c"
struct_of 40 >"$scratch/core/a.h"
python3 tests/house/members.py "$scratch" || failures=1
struct_of 41 >"$scratch/core/a.h"
python3 tests/house/members.py "$scratch" >/dev/null && echo "a large struct went unseen" && failures=1

tests/house/sizes . || failures=1
python3 tests/house/members.py . || failures=1
exit $failures
