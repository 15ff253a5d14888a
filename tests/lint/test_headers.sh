#!/usr/bin/env bash
# What would break: users whose compiler is stricter than ours or speaks C++, files that only compile because of what they
# include before, and readers who type in what a page shows.
set -u
cd "$SOURCE_DIR" || exit 1
failures=0
first=$(mktemp)
trap 'rm -f "$first"' EXIT
strict="-Wall -Wextra -Wpedantic -Werror -fsyntax-only -Iinclude"

try()
{
	# shellcheck disable=SC2086
	if ! echo "#include <$header>" | "$@" $strict -; then
		echo "$header does not stand alone under: $*"
		failures=1
	fi
}

for header in tutti/tutti.h tutti/train.h tutti/parallel.h tutti/rpc.h tutti/transport.h; do
	try gcc -x c -std=c11 -Wstrict-prototypes
	try g++ -x c++ -std=c++11
done
strict="-Wall -Wextra -Wno-psabi -Werror -fsyntax-only -fexceptions -I. -Iinclude -D_GNU_SOURCE"
library="core transport collectives train rpc"
# A header that a file of the library includes before anything else has just been compiled so, if that file is
# part of this build.
grep -oE '"file": "[^"]+\.c"' "$BUILD_DIR/compile_commands.json" | sed -E "s|.*\"($SOURCE_DIR/)?([^\"]+)\"|\2|" |
	grep -E "^(${library// /|})/" | sort -u | xargs grep -hm1 '^ *# *[a-z]' | sed -n 's/^ *# *include *"\(.*\)".*/\1/p' | sort -u >"$first"
# shellcheck disable=SC2086
for header in $(find $library -name '*.h' | grep -vxFf "$first"); do
	grep -q '^#ifndef' "$header" || continue    # a template, included with its parameters defined
	try gcc -x c -std=c11
done
python3 -B tests/lint/fragments.py . docs/{data-parallel,processes-and-threads,rpc,remote-training,flags}.md || failures=1
exit $failures
