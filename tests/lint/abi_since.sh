#!/usr/bin/env bash
# abi_since.sh [REVISION]: compares the public headers with those of a release: functions may have been added, and nothing else.
# REVISION: the commit of that release (default: the last one with an earlier version in CMakeLists.txt).
set -u
cd "$(dirname "$0")/../.." || exit 1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

if ! command -v abidiff >/dev/null; then
	echo "abidiff is not installed (Debian: abigail-tools)"
	exit 77
fi
raised=$(git log -1 --format=%H -G'^project\(tutti VERSION' -- CMakeLists.txt)
release=${1:-$raised^}
if ! git rev-parse -q --verify "$release^{commit}" >/dev/null; then
	echo "no earlier release in this checkout"
	exit 77
fi
mkdir "$scratch/old" && git archive "$release" include | tar -x -C "$scratch/old"

# interface INCLUDE LIBRARY: a library with the functions and types of these headers.
interface()
{
	python3 tests/lint/abi.py "$1" >"$2.c" && gcc -g -w -shared -fPIC -I"$1" "$2.c" -o "$2"
}
interface "$scratch/old/include" "$scratch/old.so" && interface include "$scratch/new.so" || exit 1
functions=$(nm -D --defined-only "$scratch/old.so" | grep -c ' T tutti_')
if [ "$functions" -lt 100 ]; then
	echo "abi.py found only $functions functions in $release"
	exit 1
fi
echo "abi: $functions functions of $(git describe --always "$release")"
abidiff --no-added-syms "$scratch/old.so" "$scratch/new.so"
