#!/usr/bin/env bash
# What would break: results under the name of a commit that they were not measured of.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
unset "${!GIT_@}"

# revision FOLDER: what a library of that source would say.
revision()
{
	cmake -DSOURCE="$1" -DOUTPUT=revision.c -P "$SOURCE_DIR/cmake/write_revision.cmake" || complain "write_revision of $1"
	sed -n 's/^.*words\[\] = "tutti revision: \(.*\)";$/\1/p' revision.c
}

is()
{
	[ "$1" = "$2" ] || complain "'$1' instead of '$2'"
}

git_of_source()
{
	git -C source -c user.name=nobody -c user.email=nobody@nowhere.invalid -c commit.gpgsign=false "$@" >git.out 2>&1 ||
		complain "git $*: $(cat git.out)"
}

# ---- without git, without a commit, and inside of another's repository
unknown="unknown, since git knew no commit of its source"
mkdir -p source/inside
echo one >source/file
is "$(revision "$scratch/source")" "$unknown"
git_of_source init
is "$(revision "$scratch/source")" "$unknown"
git_of_source add file
git_of_source commit -m one
is "$(revision "$scratch/source/inside")" "$unknown"

# ---- the commit, and whether the tree is just that
commit=$(git -C source rev-parse --short=12 HEAD)
is "$(revision "$scratch/source")" "$commit"
touch -d 2001-01-01 revision.c
echo a note >source/note.txt
is "$(GIT_DIR=/nonexistent revision "$scratch/source")" "$commit"
is "$(stat -c %Y revision.c)" "$(date -d 2001-01-01 +%s)"         # nothing is built anew for nothing
echo two >source/file
is "$(revision "$scratch/source")" "$commit+changes"
git_of_source checkout file
is "$(revision "$scratch/source")" "$commit"
echo 'int more;' >source/inside/more.c
is "$(revision "$scratch/source")" "$commit+changes"
printf '/*.c\n/inside/\n' >source/.git/info/exclude
is "$(revision "$scratch/source")" "$commit"

# ---- the library built here, by the programs and by what reads it
said=$(PYTHONPATH=$SOURCE_DIR/perf python3 -B -c 'import sys; from harness import builds; print(builds.revision_of(sys.argv[1]))' "$BUILD_DIR")
[[ $said =~ ^[0-9a-f]{12}(\+changes)?$ || $said = "$unknown" ]] || complain "the library says '$said'"
expect 0 timeout -k 5 60 "$BUILD_DIR/perf/all_reduce_perf" --ranks 2 -b 4 -e 4 -n 1 -J rows.json
grep -qF "(Tutti 0.2.0 ($said))" out || complain "'$said' is not in the header: $(head -1 out)"
grep -qF "\"library\": \"Tutti 0.2.0 ($said)\"" rows.json || complain "'$said' is not in rows.json: $(head -1 rows.json)"
exit $failures
