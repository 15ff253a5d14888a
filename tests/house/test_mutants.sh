#!/usr/bin/env bash
# What would break: patches in tests/mutants that no longer fit the code, or that name a test that is gone; and
# script/mutants when one does not fit. (It runs them; this only sees that it still can.)
set -u
cd "$SOURCE_DIR" || exit 1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0
for patch in tests/mutants/*.patch; do
	[ -e "$patch" ] || continue
	if ! patch -p1 --dry-run -s -f -r "$scratch/rejects" <"$patch"; then
		echo "$patch does not apply"
		failures=1
	fi
	tests=$(sed -n '/^diff /q; /^--- /q; s/^test: *//p' "$patch")
	[ -n "$tests" ] || { echo "$patch names no test"; failures=1; }
	for test in $tests; do
		[ -e "tests/$test.c" ] || { echo "$patch names $test, which is not there"; failures=1; }
	done
done

# A tree of three files; its test looks at two of them. A mutant that fits one of these only must not stay in the tree:
# the next would be killed by it.
tree=$scratch/tree
mkdir -p "$tree/script" "$tree/tests/mutants" "$scratch/bin"
cp script/mutants "$tree/script"
echo one >"$tree/a"
echo two >"$tree/b"
echo unseen >"$tree/c"
cat >"$scratch/bin/cmake" <<'END'
#!/bin/sh
mkdir -p build/dev/tests
printf '#!/bin/sh\n[ "$(cat a b | xargs)" = "one two" ]\n' >build/dev/tests/test_both
chmod +x build/dev/tests/test_both
END
chmod +x "$scratch/bin/cmake"
# change FILE FROM TO
change()
{
	printf -- '--- a/%s\n+++ b/%s\n@@ -1 +1 @@\n-%s\n+%s\n' "$@"
}
{ echo "test: x/test_both"; change a a one 1; change b b three 3; } >"$tree/tests/mutants/half.patch"
{ echo "test: x/test_both"; change c c unseen 3; } >"$tree/tests/mutants/harmless.patch"
{ echo "test: x/test_both"; change b b two 2; } >"$tree/tests/mutants/whole.patch"
if PATH=$scratch/bin:$PATH "$tree/script/mutants" >"$scratch/said"; then
	echo "script/mutants is content with a mutant that does not fit and one that survives"
	failures=1
fi
for message in 'half: .*tests/mutants/half.patch no longer applies' 'harmless: SURVIVED' 'whole: killed by ' \
	'^1 killed, 2 not$'; do
	if ! grep -q "$message" "$scratch/said"; then
		echo "script/mutants did not say '$message' but:"
		cat "$scratch/said"
		failures=1
	fi
done
exit $failures
