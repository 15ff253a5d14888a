#!/usr/bin/env bash
# What would break: tests/verbs/guest does not end as its command does, waits without end for a guest that hangs, or leaves
# processes or files behind. The virtual machine is a fake.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
guest=$SOURCE_DIR/tests/verbs/guest
mkdir bin few tmp
export TMPDIR=$scratch/tmp

# fake LINE...: what the virtual machine does; its standard output takes the exit status, descriptor 3 the output.
fake()
{
	printf '%s\n' '#!/bin/bash' "$@" >bin/qemu-system-x86_64
	chmod +x bin/qemu-system-x86_64
}

# ends CODE ARGUMENT...: ends so, and leaves nothing; a process of the fake would have its end of the pipe open.
mkfifo alive
ends()
{
	local reader
	timeout 60 cat <alive &
	reader=$!
	PATH=$scratch/bin:$PATH expect "$1" "${@:2}" 5>alive
	wait $reader || complain "a process is left"
	[ -z "$(ls tmp)" ] || complain "left: $(ls tmp)"
}

# said FILE TEXT
said()
{
	grep -q -- "$2" "$1" || complain "no '$2' in: $(cat out err)"
}

expect 2 "$guest" --loss some true
said err '--loss takes'
expect 2 "$guest" --devices 2
for program in bash dirname realpath sed sort; do
	ln -s "$(command -v $program)" few/
done
PATH=$scratch/few expect 77 "$guest" true
said out '^guest: these Debian packages are missing.* qemu-system-x86 .*busybox-static'

fake 'echo said >&3' 'echo 7'
if PATH=$scratch/bin:$PATH "$guest" true >out; [ $? = 77 ]; then
	cat out
	[ $failures != 0 ] || exit 77
fi
ends 7 "$guest" true
said out '^said$'
fake 'echo "no memory" >&2'
ends 125 "$guest" true
said err 'no memory'
fake 'echo begun >&3' 'exec sleep 1000'
ends 124 "$guest" --timeout 1 true
said out '^begun$'
said err 'did not end within 1 s'

# shellcheck disable=SC2317 # ends calls it
killed()
{
	"$guest" true &
	until grep -q begun out; do
		kill -0 $! || break
		sleep 0.1
	done
	kill -TERM $!
	wait $!
}
ends 143 killed

# The guest is told the command, where it runs and what of the environment it sees.
# shellcheck disable=SC2016 # the fake expands it
fake 'cat "$TMPDIR"/*/run >&3' 'echo 0'
TUTTI_A="it's b" SEED=5 OTHER=6 ends 0 "$guest" --devices 2 --loss 0.5 echo "a  b" "\$c'"
said out '^here=.* devices=2 loss=0.5 delay=0$'
said out "^cd '$scratch'$"
(
	eval "$(grep -E '^(export|set)' out)"
	[ "$TUTTI_A,$SEED,$#,$2,$3" = "it's b,5,3,a  b,\$c'" ]
) || complain "told: $(cat out)"
grep -q OTHER out && complain "told: $(cat out)"
exit $failures
