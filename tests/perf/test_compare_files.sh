#!/usr/bin/env bash
# slow: 2 s
# no_asan: it times or compares programs that other tests run here, too
# What would break: hours of measuring that are lost with the terminal or on a full disk, and results of nobody knows which
# commit.
set -u
. "$SOURCE_DIR/tests/perf/fake_compare.sh"
export FAKE='openmpi_=x3;mpich_=x2'
files="report.html results.csv results.json table.md"
script="timeout -k 5 100 $SOURCE_DIR/perf/compare --build $scratch/build --sizes 16,1K,64K --rounds 2"

# names FOLDER: all that is in it, in one line.
names()
{
	find "$1" -mindepth 1 -printf '%f\n' | sort | xargs
}

# gone CODE WHY: what was left by a run whose standard output was lost; its exit code is in $got.
gone()
{
	[ "$got" = "$1" ] || complain "$2: exit code $got instead of $1: $(cat err)"
	[ "$(wc -l <err)" = 1 ] || complain "$2 is not said once: $(cat err)"
	says "compare: the standard output is gone: $2" err
}

# ---- standard output that nobody reads, is full, or is closed: the files are whole
mkfifo pipe
exec 3<>pipe 4>pipe 3<&-
$script --out unread >&4 2>err
got=$?
gone 4 'Broken pipe.'
exec 4>&-
$script --out full >/dev/full 2>err
got=$?
gone 4 'No space left on device.'
$script --out closed >&- 2>err
got=$?
gone 4 'it is closed.'
for folder in unread full closed; do
	[ "$(names $folder)" = "$files" ] || complain "$folder: $(names $folder)"
	json $folder "d['complete'] and len(d['points']) == 3 and all(len(t) == 2 for p in d['points'] for t in p['times_us'].values())"
	tail -1 $folder/report.html | grep -q '</html>' || complain "$folder/report.html is cut"
done
# Where the files cannot be written either, that is what counts.
FAKE='mpich_=removes' $script --out late >/dev/full 2>err
[ $? = 3 ] || complain "neither output nor files: $(cat err)"
# Without files nothing is left to measure for.
rm -f build/perf/*.starts
$script >/dev/full 2>err
got=$?
gone 4 'No space left on device, and there is no --out: what is measured would be lost.'
[ -z "$(find build -name '*.starts')" ] || complain "measured for nobody"

# ---- a full disk cuts no file: all are new, or all as they were
compare 0 --sizes 16 --rounds 2 --out cut
mkdir before
cp cut/* before
(
	ulimit -f 8
	compare 3 --sizes 16,1K,64K --rounds 4 --out cut
	exit $failures
) || failures=1
says 'compare: the results could not be written to cut: File too large (re'
[ "$(names cut)" = "$files" ] || complain "left in the folder: $(names cut)"
for file in $files; do
	cmp cut/$file before/$file || complain "$file has changed"
done
compare 2 --sizes 16 --rounds 2 --out ""
says 'compare: error: --out: the folder has no name'

# ---- the commit of what was measured
commit_is()
{
	compare 0 --sizes 16 --rounds 2 --out named
	says "Commit of Tutti: $1." out
	says "Commit of Tutti: $1." named/table.md
	says "\"commit\": \"$1\"" named/results.json
	json named "('Commit of Tutti: ' + d['commit'].replace(\"'\", '&#x27;')) in open('named/report.html').read()"
	grep -q "$scratch" named/* && complain "a path is in a result"
}
commit_is 'unknown, since the library is not here or too old to say'
printf 'ELF\0tutti revision: 0123456789ab+changes\0more' >build/libtutti.so
commit_is 0123456789ab+changes
exit $failures
