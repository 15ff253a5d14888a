#!/usr/bin/env bash
# slow: 5 s
# no_asan: it times or compares programs that other tests run here, too
# What would break: a slowdown that is not found, and a change that is blamed for the machine's noise. The builds
# are fakes whose times are made up from a seed.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
. "$SOURCE_DIR/tests/perf/fake_build.sh"

# regress CODE WORD...: with its output in ./out.
regress()
{
	local code=$1 got
	shift
	timeout -k 5 100 "$SOURCE_DIR/perf/regress" "$@" >out 2>&1
	got=$?
	[ "$got" = "$code" ] || complain "exit code $got instead of $code from regress $*: $(tail -5 out)"
}

says()
{
	grep -qF -- "$1" out || complain "'$1' is not in the output: $(head -c 600 out)"
}

fake_build old
fake_build new
some="--over shm --ranks 2 --sizes 16,64,256,1K --rounds 8"

# ---- equal builds: noise of 5 % and some seeds; a slowdown of 10 % is found in it
export FAKE_NOISE=0.05
for FAKE_SEED in 1 2 3; do
	export FAKE_SEED
	# shellcheck disable=SC2086
	regress 0 old new $some
	says 'Nothing got slower.'
done
FAKE_NOISE=0.02
# shellcheck disable=SC2086
FAKE='new/perf=x1.1' regress 1 old new $some
says 'Slower:'
says 'all_reduce, 2 ranks, shared memory, float, 64 B: 1.'
says 'float, zero copy, 1 KiB: 1.'
# shellcheck disable=SC2086
FAKE='old/perf=x1.1' regress 0 old new $some                  # faster is not slower
# shellcheck disable=SC2086
FAKE='new/perf=x1.01' regress 0 old new $some                 # and 1 % is not worth a word

# ---- what was slower only once is not blamed: the first nine starts only, which are the first set of rounds
rm old/perf/*.starts new/perf/*.starts
FAKE='old/perf=x1.2@10;new/perf=x1.2' regress 0 old new --over tcp --ranks 2 --sizes 16 --rounds 8
says 'slower once, not again'

# ---- wrong values, failures, and lines that cannot be understood
FAKE='new/perf=wrong' regress 1 old new --sizes 16
says 'new gave WRONG VALUES'
FAKE='new/perf=dies' regress 3 old new --over tcp --ranks 2 --sizes 16
says 'new is left out of all_reduce'
says 'Nothing was measured: see above.'
says '    the message before it died'
rm -f new/perf/*.starts old/perf/*.starts
FAKE='new/perf=dies@12' regress 3 old new --over tcp --ranks 2 --sizes 16,1M --rounds 8
says 'Nothing that was measured got slower.'
rm -f new/perf/*.starts old/perf/*.starts
FAKE='new/perf=hangs' regress 3 old new --over tcp --ranks 2,4,8 --sizes 16,1M,16M --timeout 3
says 'new is left out of all that follows: it did not end in time in all_reduce, 2 ranks, TCP and in all_reduce, 4 ranks, TCP.'
[ "$(cat new/perf/*.starts)" = .. ] || complain "who hung was started again: $(wc -c new/perf/*.starts)"
# ---- what measures nothing is no result, and a lost output is told by the exit code
regress 2 old new --over shm --ranks 2 --sizes 1,3
says 'nothing would be measured: one element for each rank takes 4 B at least, and the largest of --sizes is 3 B'
for slow in 1 2; do
	FAKE="new/perf=x$slow" timeout -k 5 100 "$SOURCE_DIR/perf/regress" old new --over tcp --ranks 2 --sizes 16 --rounds 8 >/dev/full 2>err
	got=$?
	[ $got = $((slow == 2 ? 1 : 4)) ] || complain "exit code $got of $slow times as slow to a full disk"
	[ "$(cat err)" = "regress: the standard output is gone: No space left on device." ] || complain "a full disk: $(cat err)"
done
printf 'ELF\0tutti revision: 0123456789ab\0' >old/libtutti.so
regress 0 old new --over tcp --ranks 2 --sizes 16 --rounds 8
says 'Commit of old: 0123456789ab.'
says 'Commit of new: unknown, since the library is not here or too old to say.'
regress 3 old nowhere-at-all
says "'nowhere-at-all' is neither a folder with a build"
for words in "old" "old new --rounds 0" "old new --rounds 6" "old new --collectives none" "old new --sizes x" \
	"old new --effect nan" "old new --effect -1" "old new --significance 0" "old new --significance 2"; do
	# shellcheck disable=SC2086
	regress 2 $words
	says 'usage: regress'
done
exit $failures
