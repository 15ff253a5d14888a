#!/usr/bin/env bash
# slow: 4 s
# What would break: a callback of any public header that an exception leaves, or the end of its thread, and a program that
# goes on with our locks held and hangs in a later call.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
ulimit -c 0
unset WORLD_SIZE RANK
program=$(find "$BUILD_DIR/tests" -name callback_main -type f)
[ -n "$program" ] || { echo "there is no C++ compiler"; exit 77; }
export TUTTI_TIMEOUT_MS=20000
aborted=134
ours='^tutti: .*an exception, pthread_exit or the thread.s cancellation left'
normally='; callbacks must return normally\. Aborting\.$'

# ends PATTERN COMMAND...: the process ends with this line, and says no more.
ends()
{
	local pattern=$1
	shift
	# shellcheck disable=SC2016
	expect $aborted sh -c '"$@"; exit $?' - timeout -k 5 60 "$@" # the shell's own word on it goes to ./err
	said "$pattern"
	grep -q . out && complain "$* went on: $(head -3 out)"
}

# Of a thread of the library, which has nobody who catches it, C++ itself ends the process.
pattern_of()
{
	if [ "$1" = library ] && [ "$2" = throw ]; then
		echo "terminate called after throwing an instance of 'std::runtime_error'"
	else
		echo "$ours $3$normally"
	fi
}

"$program" list >rows || complain "callback_main lists nothing"
while read -r row thread callback; do
	for how in throw exit cancel; do
		[ "$row" = transport ] && continue
		pattern=$(pattern_of "$thread" "$how" "$callback")
		if [ "$thread" = child ]; then
			expect 3 timeout -k 5 60 "$program" "$row" "$how"
			said "$pattern"
			said 'was killed by signal 6'
			grep -q . out && complain "the rank of $row went on: $(head -3 out)"
		else
			ends "$pattern" "$program" "$row" "$how"
		fi
	done
done <rows

# A reduction by messages, and in a program that is linked with libtutti.a.
pattern=$(pattern_of own throw "$(sed -n 's/^reduce own //p' rows)")
ends "$pattern" env TUTTI_WINDOW=0 "$program" reduce throw
ends "$pattern" "$(dirname "$program")/callback_static_main" reduce throw

# Each function of a transport. map and unmap are for GPUs' memory, which this transport does not reach.
transport=(tutti_transport_plugin open reach connect send recv progress close destroy event_fd arm mend in_doubt)
export TUTTI_TRANSPORT_PLUGIN=$(find "$BUILD_DIR/tests" -name callback_plugin.so) TUTTI_TRANSPORTS=mailbox TUTTI_WINDOW=0
export MAILBOX=$(find "$BUILD_DIR/tests" -name mailbox_plugin.so)
for function in "${transport[@]}"; do
	for how in throw exit; do
		name="the function $function of a transport"
		[ "$function" = tutti_transport_plugin ] && name="the function of TUTTI_TRANSPORT_PLUGIN"
		pattern="$ours $name$normally"
		[ $how = throw ] && pattern+="|^terminate called after throwing" # a thread of the library may be the first
		ends "$pattern" env LEAVES="$function" HOW=$how "$program" transport $how
	done
done

# The callbacks of each header, by the rows above. One that is new has a row, and is added here.
declare -A known=(
	[tutti]='tutti_done_fn fn fn tutti_reduce_fn'
	[train]='tutti_replica_fn tutti_trainer_fn fn'
	[parallel]='tutti_block_fn forward backward backward_weights'
	[transport]='open reach connect send recv progress close destroy event_fd arm map unmap mend in_doubt'
	[rpc]='tutti_rpc_fn release died destroy release'
)
for header in "${!known[@]}"; do
	names=$(gcc -fpreprocessed -dD -E -P "$SOURCE_DIR/include/tutti/$header.h" 2>/dev/null |
		grep -oE '\(\*[a-z_]+\)\(' | tr -d '(*)' | xargs)
	[ "$names" = "${known[$header]}" ] ||
		complain "$header.h has the callbacks '$names', not '${known[$header]}': callback_main.cc has rows of these"
done
exit $failures
