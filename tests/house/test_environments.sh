#!/usr/bin/env bash
# What would break: script/environments says that all is well where script/test failed, hung or was not run, or leaves
# processes or files behind. script/test is a fake.
set -u
. "$SOURCE_DIR/tests/scratch.sh"

mkdir -p tree/script tmp
cp "$SOURCE_DIR/script/environments" tree/script/
printf '#!/bin/bash\n' >tree/script/bootstrap
printf 'build/\n' >tree/.gitignore
chmod +x tree/script/bootstrap
git -C tree init -q

# fake LINE...: what script/test of the last commit does.
fake()
{
	printf '%s\n' '#!/bin/bash' "$@" >tree/script/test
	chmod +x tree/script/test
	git -C tree add . && git -C tree -c user.name=n -c user.email=e commit -q -m fake
}

# environments CODE LINE ARGUMENT...: ends so, says that, and leaves nothing.
environments()
{
	local code=$1 line=$2
	shift 2
	TMPDIR=$scratch/tmp expect "$code" tree/script/environments "$@"
	grep -qE -- "$line" out || complain "no '$line' in: $(cat out err)"
	[ -z "$(ls tmp)" ] || complain "left: $(ls tmp)"
}

fake 'echo "$(id -u) $HOME $* $(jobs -p)"' 'echo "3 passed, 0 failed, 1 skipped"'
environments 0 '^busy2 +3 passed, 0 failed, 1 skipped \([0-9]+ s\)$' --quick busy2 user
grep -qx '2 environments passed, 0 failed, 0 skipped' out || complain "the last line: $(tail -1 out)"
grep -q ' quick ' tree/build/environments/busy2.log || complain "not quick: $(cat tree/build/environments/busy2.log)"
grep -qE '^[1-9][0-9]* /.*/user ' tree/build/environments/user.log || complain "not a user: $(cat tree/build/environments/user.log)"

fake 'echo "    FAILED: core/test_net"' 'echo "3 passed, 1 failed, 0 skipped"' 'exit 1'
environments 1 '^busy4 +3 passed, 1 failed, 0 skipped ' busy4
environments 1 '^0 environments passed, 2 failed, 0 skipped$' user busy2
grep -q 'FAILED: core/test_net' out || complain "what failed is not shown: $(cat out)"

# No process of an environment that was ended is left: all have this end of a pipe.
mkfifo alive
fake 'sleep 1000 &' 'sleep 1000'
(
	environments 1 '^busy2 +ended after 1s ' --limit 1s busy2
	exit $failures
) 5>alive &
job=$!
timeout 60 cat <alive || complain "a process is left"
wait $job || failures=1

# Without root it says so.
weak=()
[ "$(id -u)" != 0 ] || weak=(setpriv --reuid 54321 --clear-groups)
chmod -R a+rwX .
TMPDIR=$scratch/tmp expect 0 "${weak[@]}" tree/script/environments bare chroot
grep -qx 'bare    skipped: it needs root' out || complain "without root: $(cat out err)"
grep -qx '0 environments passed, 0 failed, 2 skipped' out || complain "without root: $(tail -1 out)"
expect 2 tree/script/environments moon
grep -q "there is no environment 'moon'" err || complain "an unknown name: $(cat err)"
exit $failures
