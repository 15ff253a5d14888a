#!/usr/bin/env bash
# What would break: a program whose own symbols collide with ours, and a library that grows past its limit.
set -u
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

complain()
{
	echo "$*"
	failures=1
}

# Reads nm's output; fails on any name that is not ours. TUTTI_0 is the name of the symbols' version.
only_tutti()
{
	! awk 'NF >= 3 { print $3 }' | grep -vE '^(tutti_|TUTTI_0(@|$))'
}

# The check sees what it is for.
printf 'int tutti_fine;\nint foreign;\n' >"$scratch/a.c"
gcc -shared -fPIC -o "$scratch/a.so" "$scratch/a.c"
nm -D --defined-only "$scratch/a.so" | only_tutti >/dev/null && complain "a foreign name went unseen"

so=$BUILD_DIR/libtutti.so archive=$BUILD_DIR/libtutti.a
nm -D --defined-only "$so" | only_tutti || complain "$so shows names that are not ours"
nm -g --defined-only "$archive" | only_tutti || complain "$archive shows names that are not ours"

# Every function of the public headers is there, built or refusing with UNSUPPORTED.
nm -D --defined-only "$so" | sed -n 's/^.* T \(.*\)@@TUTTI_0$/\1/p' | sort >"$scratch/there"
cat "$SOURCE_DIR"/include/tutti/{tutti,train,parallel,rpc}.h | gcc -fpreprocessed -dD -E -P - 2>/dev/null |
	grep -oE '\btutti_[a-z0-9_]+\(' | tr -d '(' | sort -u >"$scratch/declared"
[ "$(wc -l <"$scratch/declared")" -gt 50 ] || complain "found no declarations in the headers"
comm -13 "$scratch/there" "$scratch/declared" >"$scratch/missing"
[ ! -s "$scratch/missing" ] ||
	complain "declared, but not in libtutti.so: $(tr '\n' ' ' <"$scratch/missing")"
comm -23 "$scratch/there" "$scratch/declared" >"$scratch/hidden"
[ ! -s "$scratch/hidden" ] || complain "in libtutti.so, but in no public header: $(tr '\n' ' ' <"$scratch/hidden")"

# Failure is decided behind control.h: only these folders call the board, and consensus.
# callers OBJECTS PREFIX FOLDERS: prints the others.
callers()
{
	(cd "$1" && find . -name '*.o' -exec nm -Au {} + 2>/dev/null) | grep " U $2" | grep -vE "^\./(.*/)?collectives/($3)/"
}
mkdir -p "$scratch/collectives/p2p"
echo 'void board_leave(void); void f(void); void f(void) { board_leave(); }' >"$scratch/p.c"
gcc -c -o "$scratch/collectives/p2p/p.c.o" "$scratch/p.c"
callers "$scratch" board_ 'control|window|comm' >/dev/null || complain "p2p that calls the board went unseen"
objects=$(dirname "$(find "$BUILD_DIR" -path '*/collectives/control' -type d | head -1)")/..
callers "$objects" board_ 'control|window|comm' && complain "only control, window and comm call the board"
callers "$objects" consensus_ 'control|comm' && complain "only control and comm call consensus"

# A function of ours that has the name of a library's would be called in its place, by us and without a word.
local_json=$(nm --defined-only "$so" | awk 'NF >= 3 { print $3 }' | sort -u)
their_json=$(readelf -d "$so" | grep -q jansson && nm -D --defined-only "$(ldd "$so" | awk '/jansson/ { print $3 }')" |
	awk '{ sub(/@.*/, "", $3); print $3 }' | sort -u)
[ -z "$(comm -12 <(echo "$local_json") <(echo "$their_json") | grep json)" ] || complain "names that libjansson has, too"

readelf -d "$so" | grep -q 'SONAME.*\[libtutti\.so\.0\]' || complain "the SONAME is not libtutti.so.0"
strip -o "$scratch/stripped" "$so"
bytes=$(stat -c %s "$scratch/stripped")
kernels=$(stat -c %s "$BUILD_DIR/kernels.fatbin" 2>/dev/null || echo 0) # for GPUs, where nvcc is
[ $((bytes - kernels)) -lt 1750000 ] || complain "libtutti.so has $bytes bytes; the limit is 1.75 MB and the kernels' $kernels"
exit $failures
