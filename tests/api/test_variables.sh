#!/usr/bin/env bash
# What would break: a variable that is set, cannot be obeyed and is passed over in silence; and one that can be, and
# is refused.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
unset WORLD_SIZE RANK TUTTI_SECRET TUTTI_SECRET_FILE
tuttirun="$BUILD_DIR/launch/tuttirun"
run="timeout -k 5 60 $tuttirun -n 2"
perf="$BUILD_DIR/perf/all_reduce_perf -b 64 -e 64 -n 1"
export TUTTI_LOG=info

# with VARIABLE=VALUE... CODE: the job of two processes, of two threads, and of one rank.
with()
{
	local code=${*: -1} variables=("${@:1:$#-1}") way

	for way in "$run $perf" "timeout -k 5 60 $perf -t 2" "timeout -k 5 60 $perf"; do
		# shellcheck disable=SC2086
		expect "$code" env "${variables[@]}" $way
		[ "$code" = 0 ] || said "${variables[0]}[ :]"
	done
}

echo 'somebody else wrote this' >foreign
# ---- TUTTI_LINKS, whether or not links are measured in the end
for window in 0 1; do
	with TUTTI_LINKS=/nonexist/links TUTTI_WINDOW=$window 3
	said 'is not there and cannot be made: No such file'
	with TUTTI_LINKS=/ TUTTI_WINDOW=$window 3
	said 'it is no file'
	with TUTTI_LINKS=/proc/links TUTTI_WINDOW=$window 3
	said 'TUTTI_LINKS=/proc/links is not there and cannot be made: '
	with TUTTI_LINKS=foreign TUTTI_WINDOW=$window 3
	said 'TUTTI_LINKS=foreign is no file of measured links: none of its lines is one'
	with TUTTI_LINKS=links TUTTI_WINDOW=$window 0
done
[ "$(cat foreign)" = 'somebody else wrote this' ] || complain "a file of somebody else's was written to"
# All ranks of a job name the one that has failed, and that one names itself.
expect 3 env TUTTI_LINKS=/ $run $perf
said 'tutti_init failed: rank 0: TUTTI_LINKS=/ '
grep -q 'tutti_init failed: TUTTI_LINKS' err && complain "a rank does not name itself: $(cat err)"
expect 0 env TUTTI_LINKS=links TUTTI_WINDOW=0 $run $perf
[ -s links ] || complain "links were measured and not kept"
chmod 444 links
with TUTTI_LINKS=links TUTTI_WINDOW=0 0

# ---- the secret: the user's own goes before tuttirun's
expect 3 env TUTTI_SECRET_FILE=/nonexist $run $perf
said 'TUTTI_SECRET_FILE=/nonexist cannot be opened: No such file'
echo open-sesame >secret
chmod 600 secret
# shellcheck disable=SC2016
expect 0 env TUTTI_SECRET_FILE=secret $run sh -c 'echo "${TUTTI_SECRET-none} $TUTTI_SECRET_FILE"; exec "$@" >&2' - $perf
[ "$(sort -u out)" = "none secret" ] || complain "the secret's file did not reach the ranks: $(cat out)"
# shellcheck disable=SC2016
expect 0 env TUTTI_SECRET=ours $run sh -c 'echo $TUTTI_SECRET; exec "$@" >&2' - $perf
[ "$(sort -u out)" = ours ] || complain "the secret did not reach the ranks: $(cat out)"

# ---- TUTTI_ADDRESS: what nobody can have, and what a router might have
for tcp in TUTTI_WINDOW=1 TUTTI_TRANSPORTS=tcp; do
	expect 3 env TUTTI_ADDRESS=no-such-thing $tcp $run $perf
	said 'TUTTI_ADDRESS=no-such-thing is neither an address nor an interface'
	expect 0 env TUTTI_ADDRESS=240.0.0.1 $tcp $run $perf
	said 'TUTTI_ADDRESS=240.0.0.1 is no address of this machine'
	expect 0 env TUTTI_ADDRESS=127.0.0.2 $tcp $run $perf
	grep -q 'is no address' err && complain "127.0.0.2: $(cat err)"
done
exit $failures
