#!/usr/bin/env bash
# slow: 6 s
# What would break: a job that does not begin says nothing for five minutes of what it waits for.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_RESTARTED TUTTI_LOG
perf="$BUILD_DIR/perf/all_reduce_perf -b 4 -e 4"
jobs=()
trap 'kill -KILL "${jobs[@]}"; wait "${jobs[@]}" 2>/dev/null; rm -rf "$scratch"' EXIT

# begin NAME RANKS WORDS: a job in which only the ranks of a list join; its stderr is in the file NAME.
begin()
{
	: >"$1"
	# shellcheck disable=SC2016
	"$BUILD_DIR/launch/tuttirun" --timeout 200 -n 8 sh -c 'case " $1 " in *" $RANK "*) shift; exec "$@" ;; esac
		exec sleep 200' - "$2" env $3 $perf 2>"$1" >out.$1 &
	jobs+=($!)
}

# says NAME PATTERN: within reasonable time.
says()
{
	for _ in $(seq 1000); do
		grep -qE "$2" "$1" && return
		sleep 0.1
	done
	complain "no '$2' in $1: $(head -3 "$1")"
}

begin quiet '0 1' 'TUTTI_LOG=off'
begin missing '0 1 3 4 6 7' ''
begin store '1' ''
begin grow '1' 'TUTTI_RESTARTED=1'
begin unknown '1' 'MASTER_ADDR=no-host.invalid'
# The last rank is stopped, and the others shrink.
TUTTI_TIMEOUT_MS=9000 TUTTI_SILENCE_MS=500 "$BUILD_DIR/launch/tuttirun" --timeout 200 -n 3 "$BUILD_DIR/tests/grow_main" left 2>shrink >out.shrink &
jobs+=($!)
# Rank 2 comes to no call that makes a child.
for call in split dup create_from; do
	for wire in shm tcp window; do
		: >"$call.$wire"
		transports=TUTTI_TRANSPORTS=$wire
		[ "$wire" = window ] && transports=TUTTI_WINDOW=1
		env "$transports" "$BUILD_DIR/launch/tuttirun" --timeout 200 -n 4 "$BUILD_DIR/tests/absent_main" "$call" 2>"$call.$wire" >/dev/null &
		jobs+=($!)
	done
done
says missing '^tutti: rank 0: still waits for ranks 2, 5 of 8 at 127.0.0.1:[0-9]+$'
says store '^tutti: rank 1: still waits for rank 0 at 127.0.0.1:[0-9]+: .*Connection refused'
says grow '^tutti: rank [0-9]: still waits for a running job that calls tutti_comm_grow at 127.0.0.1:[0-9]+: .*Connection refused'
# Not only after the whole deadline of five minutes.
says unknown '^tutti: rank 1: still waits for rank 0 at no-host.invalid:[0-9]+: the host name no-host.invalid cannot be resolved: '
says shrink '^tutti: rank 0: still waits for rank 2 in tutti_comm_shrink$'
for wire in shm tcp window; do
	for call in split dup; do
		for rank in 0 1 3; do
			says "$call.$wire" "^tutti: rank $rank: still waits for rank 2 in tutti_comm_$call\$"
		done
	done
	says "create_from.$wire" '^tutti: rank 0: still waits for rank 2 in tutti_comm_create_from \(tag 5\)$'
	says "create_from.$wire" '^tutti: rank 1: still waits for an answer of rank 0 in tutti_comm_create_from \(tag 5\)$'
done
[ ! -s quiet ] || complain "TUTTI_LOG=off: $(cat quiet)"
[ "$(wc -l <missing)" = 1 ] || complain "more than one rank says it, or more than once: $(cat missing)"
exit $failures
