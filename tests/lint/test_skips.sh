#!/usr/bin/env bash
# What would break: a test that is skipped where it must run, and script/test passes all the same; or one of its lines says less
# than the others. CMake, ctest and the guest are fakes.
set -u
. "$SOURCE_DIR/tests/scratch.sh"

mkdir -p bin tree/script tree/tests/core tree/build/dev/Testing/Temporary
cp "$SOURCE_DIR/script/test" tree/script/
printf '#!/bin/bash\n' | tee bin/cmake tree/script/bootstrap >bin/ctest
chmod +x bin/* tree/script/*
cat >>bin/ctest <<'END'
echo '1/3 Test #1: core/test_net ....   Passed    0.01 sec'
echo '2/3 Test #2: core/test_tls ....***Skipped   0.01 sec'
echo '3/3 Test #3: core/test_wait ...   Passed    0.01 sec'
END
cat >tree/build/dev/Testing/Temporary/LastTest.log <<'END'
1/3 Test: core/test_net
Command: "sh" "-c" "echo the command does not count"
Output:
----------------------------------------------------------
there is but one family
[  SKIPPED ] one_family
[  SKIPPED ] 1 test(s), listed below:
[  SKIPPED ] one_family
2/3 Test: core/test_tls
Output:
----------------------------------------------------------
OpenSSL: it is not installed
END

# says CODE LINE...: script/test ends so, and has these lines.
part=core
says()
{
	local code=$1 line
	shift
	expect "$code" env PATH="$scratch/bin:$PATH" tree/script/test $part
	for line; do
		grep -qxF -- "$line" out || complain "no line '$line' in: $(cat out err)"
	done
}

echo '* core/test_tls it is not installed' >tree/tests/skips.txt
says 1 '    skipped: core/test_tls (it is not installed)' \
	'    FAILED: core/test_net:one_family was skipped, and tests/skips.txt does not allow it' \
	'    2 passed, 1 failed' '2 passed, 1 failed, 1 skipped'
# A test is skipped for the reason that it prints. Another one's does not count, nor its command.
for reason in 'it is not installed' 'the command does not count' 'there is but two'; do
	echo "* core/test_net:* $reason" >>tree/tests/skips.txt
done
says 1 '    FAILED: core/test_net:one_family was skipped, and prints none of the reasons that tests/skips.txt has for it: there is but one family'
echo '* core/test_net:one_family there is but one' >>tree/tests/skips.txt
says 0 '    2 passed, 0 failed' '2 passed, 0 failed, 2 skipped'

# There are two guests. A test that hangs leaves an output without an end.
part=guest
mkdir tree/tests/verbs
guest=tree/tests/verbs/guest
printf '%s\n' '#!/bin/bash' ctest 'echo "== LastTest.log"' 'cat build/dev/Testing/Temporary/LastTest.log' >$guest
chmod +x $guest
says 0 '    skipped: core/test_tls (it is not installed)' '    skipped: core/test_net:one_family (there is but one)' \
	'4 passed, 0 failed, 3 skipped'
printf '%s\n' '#!/bin/bash' 'ctest | head -1' 'echo "it hung" >&2' 'exit 124' >$guest
says 1 '    FAILED: the guest ended with 124' '    it hung' '2 passed, 2 failed, 0 skipped'
printf '%s\n' '#!/bin/bash' '[ $# = 0 ] || { echo "no QEMU"; exit 1; }' >tree/script/bootstrap
says 0 '    skipped: what needs RDMA devices, 1 a side (no QEMU)' '    skipped: what needs RDMA devices, 2 a side (no QEMU)' \
	'0 passed, 0 failed, 2 skipped'
exit $failures
