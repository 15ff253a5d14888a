#!/usr/bin/env bash
# slow: 6 s
# What would break: a reader of docs/tutorial.md or examples/calls, whose programs do not build against an installed library, or
# print something else than the page says; and diffs in the page that are not those of the programs.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_RESTARTED
check="python3 $SOURCE_DIR/tests/lint/page_programs.py"

# ---- what the check sees
mkdir planted
printf 'int a;\nint b;\nint c;\nint d;\nint e;\nint f;\n' >planted/one
printf 'int a;\nint x;\nint c;\nint d;\nint e;\nint y;\n' >planted/two
# page MARK LINE...: a page with that block of diff
page()
{
	{
		printf '<!-- %s -->\n\n```diff\n' "$1"
		shift
		printf '%s\n' "$@"
		printf '```\n'
	} >page.md
}
whole=(' int a;' '-int b;' '+int x;' ' int c;' @@ ' int e;' '-int f;' '+int y;')
page 'diff one two' "${whole[@]}"
expect 0 $check blocks page.md planted
page 'diff one two' "${whole[@]:5}"
expect 1 $check blocks page.md planted
$check blocks page.md planted --update
expect 0 $check blocks page.md planted
page 'one two' "${whole[@]}"
expect 1 $check blocks page.md planted
printf '```console\n$ echo 1\n1\n$ seq 2\n1\n2\n```\n' >page.md
expect 0 $check run page.md
printf '```console\n$ seq 2\n1\n```\n' >page.md
expect 1 $check run page.md
printf '```console\n$ false\n```\n' >page.md
expect 1 $check run page.md

# ---- the pages and their programs, as they are installed
cmake --install "$BUILD_DIR" --prefix "$scratch/tutti" >install.log
lib_dir=$(dirname "$(find tutti -name libtutti.so | head -1)")
doc=$scratch/tutti/share/doc/tutti
for page in docs/tutorial.md docs/coming-from.md docs/measuring.md examples/calls/README.md; do
	[ -f "$doc/$page" ] || complain "$page is not installed"
	grep -oE '\]\([^)#: ]+' "$doc/$page" | cut -c3- >links
	while read -r link; do
		[ -e "$(dirname "$doc/$page")/$link" ] || complain "$page links to $link, which is not installed"
	done <links
done
$check blocks "$doc/docs/tutorial.md" "$doc/examples/tutorial" || failures=1
for program in "$doc"/examples/calls/*.c; do
	[ "$(wc -l <"$program")" -lt 60 ] || complain "$program has 60 lines or more"
done

# A library built with a sanitizer needs programs built with it.
CFLAGS="-O2 -Wall -Wextra -Werror $(sed -n 's/^CMAKE_C_FLAGS:[A-Z]*=//p' "$BUILD_DIR/CMakeCache.txt")"
export CFLAGS PKG_CONFIG_PATH=$scratch/$lib_dir/pkgconfig PATH=$scratch/tutti/bin:$PATH
cp -r "$doc/examples/tutorial" "$doc/examples/calls" .
make -s -C tutorial && make -s -C calls || { complain "make"; exit 1; }
for program in calls/*.c; do
	grep -q "\$ tuttirun.* ./$(basename "$program" .c)\b" "$doc/examples/calls/README.md" ||
		complain "examples/calls/README.md does not run $program"
done
(cd calls && $check run "$doc/examples/calls/README.md") || failures=1
if (cd tutorial && ./step5_checkpoint 2>&1 | grep -q 'jansson was not installed'); then
	echo "jansson is not installed"
	[ $failures = 0 ] && exit 77
	exit 1
fi
rm -rf tutorial/checkpoints
(cd tutorial && $check run "$doc/docs/tutorial.md") || failures=1
exit $failures
