#!/usr/bin/env bash
# What would break: programs that were linked with an earlier libtutti.so.0. abi.xml has the functions and types of the
# public headers as they were promised; functions may be added to them, and nothing else. A change that is meant, such as a
# reserved field that gets a name, is written down by
#     tests/house/test_abi.sh --update
set -u
SOURCE_DIR=${SOURCE_DIR:-$(realpath "$(dirname "$0")/../..")}
. "$SOURCE_DIR/tests/scratch.sh"
promised=$SOURCE_DIR/tests/house/abi.xml

if ! command -v abidiff >/dev/null; then
	echo "abidiff is not installed (Debian: abigail-tools)"
	exit 77
fi

# interface INCLUDE LIBRARY: a library of that interface
interface()
{
	python3 "$SOURCE_DIR/tests/house/abi.py" "$1" >"$2.c" && gcc -g -w -shared -fPIC -I"$1" "$2.c" -o "$2"
}

# changes OLD NEW: prints them; fails if there are some
changes()
{
	abidiff --no-added-syms "$1" "$2" >out 2>&1
}

interface "$SOURCE_DIR/include" "$PWD/libtutti.so" || exit 1
if [ "${1:-}" = --update ]; then
	exec abidw --no-corpus-path --no-comp-dir-path --no-show-locs --type-id-style hash libtutti.so --out-file "$promised"
fi
[ "$(nm -D --defined-only libtutti.so | grep -c ' T tutti_')" -gt 120 ] || complain "abi.py found too few functions"
changes "$promised" libtutti.so || complain "programs linked with an earlier library break: $(cat out)"

# ---- it sees what breaks them, and lets pass what does not
# broken NAME SED: with the headers changed so
broken()
{
	rm -rf changed && cp -r "$SOURCE_DIR/include" changed
	sed -i "$2" changed/tutti/tutti.h
	cmp -s changed/tutti/tutti.h "$SOURCE_DIR/include/tutti/tutti.h" && complain "$1: nothing was changed"
	interface changed "$PWD/libchanged.so" || complain "$1: does not compile"
	changes libtutti.so libchanged.so
}
broken "a removed function" '/^tutti_status tutti_mem_free(/d' && complain "a removed function is not seen"
broken "a longer struct" 's/reserved\[6\];/reserved[7];/' && complain "a longer struct is not seen"
broken "another argument" 's/^int tutti_parent_rank(const tutti_comm \*comm, int rank)/int tutti_parent_rank(const tutti_comm *comm, long rank)/' &&
	complain "another argument is not seen"
broken "another number" 's/TUTTI_SUM, TUTTI_PROD/TUTTI_PROD, TUTTI_SUM/' && complain "another number of an operation is not seen"
broken "a new function" 's/^tutti_status tutti_mem_free(/void tutti_new(void);\n&/' || complain "a new function is refused: $(cat out)"
exit $failures
