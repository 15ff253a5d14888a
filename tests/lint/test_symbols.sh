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

# Reads nm's output; fails on any name that is not ours: public, or libtutti_*, for our own libraries (core/words/export.h).
only_tutti()
{
	! awk 'NF >= 3 { print $3 }' | grep -vE '^((lib)?tutti_|TUTTI_(0|PRIVATE_[0-9.]+)(@|$))'
}

# The check sees what it is for.
printf 'int tutti_fine;\nint foreign;\n' >"$scratch/a.c"
gcc -shared -fPIC -o "$scratch/a.so" "$scratch/a.c"
nm -D --defined-only "$scratch/a.so" | only_tutti >/dev/null && complain "a foreign name went unseen"

# functions LIBRARY HEADER...: each function of the headers is there, built or refusing with UNSUPPORTED, and no other.
declared_in()
{
	(cd "$SOURCE_DIR/include/tutti" && cat "$@") | gcc -fpreprocessed -dD -E -P - 2>/dev/null |
		grep -oE '\btutti_[a-z0-9_]+\(' | tr -d '(' | sort -u
}
: >"$scratch/all"
for library in tutti tutti_rpc tutti_train; do
	so=$BUILD_DIR/lib$library.so archive=$BUILD_DIR/lib$library.a
	nm -D --defined-only "$so" | only_tutti || complain "$so shows names that are not ours"
	nm -g --defined-only "$archive" | only_tutti || complain "$archive shows names that are not ours"
	nm -D --defined-only "$so" | sed -n 's/^.* T \(.*\)@@TUTTI_0$/\1/p' | sort >"$scratch/$library"
	readelf -d "$so" | grep -q "SONAME.*\[lib$library\.so\.1\]" || complain "the SONAME of $so is not lib$library.so.1"
done
sort "$scratch"/tutti{,_rpc,_train} >"$scratch/there"
declared_in {tutti,train,parallel,rpc}.h >"$scratch/declared"
[ "$(wc -l <"$scratch/declared")" -gt 50 ] || complain "found no declarations in the headers"
comm -13 "$scratch/there" "$scratch/declared" >"$scratch/missing"
[ ! -s "$scratch/missing" ] || complain "declared, but in no library: $(tr '\n' ' ' <"$scratch/missing")"
comm -23 "$scratch/there" "$scratch/declared" >"$scratch/hidden"
[ ! -s "$scratch/hidden" ] || complain "in a library, but in no public header: $(tr '\n' ' ' <"$scratch/hidden")"
# tutti.h is libtutti's, and libtutti knows no other; rpc.h's parameters and contexts may be in libtutti_train.
declared_in tutti.h | comm -3 "$scratch/tutti" - >"$scratch/other"
[ ! -s "$scratch/other" ] || complain "in one of libtutti and tutti.h: $(tr '\n' ' ' <"$scratch/other")"
declared_in rpc.h | comm -23 "$scratch/tutti_rpc" - >"$scratch/other"
[ ! -s "$scratch/other" ] || complain "in libtutti_rpc and not in rpc.h: $(tr '\n' ' ' <"$scratch/other")"

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
objects=$BUILD_DIR/CMakeFiles/tutti_objects.dir
callers "$objects" board_ 'control|window|comm' && complain "only control, window and comm call the board"
callers "$objects" consensus_ 'control|comm' && complain "only control and comm call consensus"

# A function of ours that has the name of a library's would be called in its place, by us and without a word.
so=$BUILD_DIR/libtutti.so
local_json=$(nm --defined-only "$so" "$BUILD_DIR/libtutti_train.so" | awk 'NF >= 3 { print $3 }' | sort -u)
their_json=$(readelf -d "$so" | grep -q jansson && nm -D --defined-only "$(ldd "$so" | awk '/jansson/ { print $3 }')" |
	awk '{ sub(/@.*/, "", $3); print $3 }' | sort -u)
[ -z "$(comm -12 <(echo "$local_json") <(echo "$their_json") | grep json)" ] || complain "names that libjansson has, too"

# limit LIBRARY BYTES: stripped, without the kernels for GPUs, which are there where nvcc is.
limit()
{
	local bytes
	strip -o "$scratch/stripped" "$BUILD_DIR/lib$1.so"
	bytes=$(stat -c %s "$scratch/stripped")
	[ "$bytes" -lt $(($2 + $3)) ] || complain "lib$1.so has $bytes bytes; the limit is $2, and $3 for kernels"
}
limit tutti 1200000 "$(stat -c %s "$BUILD_DIR/kernels.fatbin" 2>/dev/null || echo 0)"
limit tutti_rpc 120000 0
limit tutti_train 500000 0
exit $failures
