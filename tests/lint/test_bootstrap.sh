#!/usr/bin/env bash
# What would break: script/bootstrap gives up at once since another apt has a lock, or waits for it for ever or without a
# word. Its list is one package, and apt-get is a fake.
set -u
. "$SOURCE_DIR/tests/scratch.sh"

mkdir bin
sed '/^needed="/,/^"/c needed="some-package:command:some-program"' "$SOURCE_DIR/script/bootstrap" >bootstrap
for tool in bash awk cat env grep head ln mktemp rm sed sort tr; do
	ln -s "$(command -v $tool)" bin/
done

# fake NAME, and its lines on stdin
fake()
{
	{ echo '#!/bin/bash'; cat; } >"bin/$1"
	chmod +x "bin/$1"
}

fake id <<<'echo 0'
fake true <<<'exit 0'
fake cmake <<<'echo "cmake version 3.25.1"'
# So that the test does not wait.
fake sleep <<<'echo "sleep $*" >>calls'
# The lock is held for as many calls as the file `held` says.
fake apt-get <<'EOF'
echo "apt-get $*" >>calls
held=$(cat held)
if [ "$held" -gt 0 ]; then
	echo $((held - 1)) >held
	echo "E: Could not get lock $(cat lock). It is held by process 7 (apt-get)" >&2
	exit 100
fi
[ ! -e broken ] || { echo "E: Unable to locate package" >&2; exit 100; }
case " $* " in *' install '*) ln -s "$(command -v cat)" bin/some-program ;; esac
EOF

# bootstrap CODE CALLS: it exits with CODE, after CALLS of apt-get.
bootstrap()
{
	rm -f calls bin/some-program
	expect "$1" env PATH="$scratch/bin" bash bootstrap
	[ "$(grep -c ^apt-get calls)" = "$2" ] || complain "not $2 calls of apt-get: $(cat calls)"
}

echo /var/lib/apt/lists/lock >lock
echo 0 >held
bootstrap 0 2
grep -q waiting out && complain "it waits for nothing: $(cat out)"

for lock in /var/lib/apt/lists/lock /var/lib/dpkg/lock-frontend; do
	echo $lock >lock
	echo 3 >held
	bootstrap 0 5
	[ "$(grep -c waiting out)" = 1 ] || complain "not one word on $lock: $(cat out)"
	grep -q "waiting up to 300 s for another apt: Could not get lock $lock. It is held by process 7 (apt-get)" out ||
		complain "the lock is not named: $(cat out)"
	grep -qE 'Timeout=(300|29.) update' calls || complain "apt was not told to wait: $(cat calls)"
done

# For ever it does not wait, and then it says what apt said.
echo 1000 >held
bootstrap 1 150
grep -q 'Could not get lock' err || complain "no reason: $(cat out err)"

# Other failures are not waited for.
echo 0 >held
touch broken
bootstrap 1 1
grep -q waiting out && complain "it waits for a package: $(cat out)"
grep -q 'Unable to locate package' err || complain "no reason: $(cat out err)"

exit $failures
