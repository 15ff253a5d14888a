#!/usr/bin/env bash
# What would break: finding the rank that a job hangs in, by the number of its tuttirun alone.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
trace="timeout -k 5 60 $BUILD_DIR/tools/tutti-trace"
top="timeout -k 5 60 $BUILD_DIR/tools/tutti-top"
unset TUTTI_TRACE_DIR
mkfifo go

said()
{
	grep -qE -- "$1" "${2:-out}" || complain "no '$1' in ${2:-out}: $(head -c 2000 "${2:-out}")"
}

# Ranks 0, 2 and 3 are in their sixth all_reduce, for which rank 1 does not come; rank 2 runs below a shell. Rank 4 has
# nothing to do with it: it is started by the same tuttirun.
cat >program <<'END2'
[ "$RANK" = 4 ] && exec sleep 100
export WORLD_SIZE=4 LOCAL_WORLD_SIZE=4
[ "$RANK" = 2 ] && { "$@"; exit; }
exec "$@"
END2
"$BUILD_DIR/launch/tuttirun" --timeout 100 -n 5 sh program "$BUILD_DIR/tests/trace_main" reduce:5 wait:1:go reduce:1 >log 2>&1 &
job=$!
trap 'kill -KILL $job; wait $job 2>/dev/null; rm -rf "$scratch"' EXIT

# until_calls PATTERN: tutti-trace calls says that of the job.
until_calls()
{
	for _ in $(seq 200); do
		$trace calls $job >out 2>err && grep -qE -- "$1" out && return
		sleep 0.05
	done
	complain "no '$1' in: $(cat out err log)"
}

for r in 0 2 3; do
	until_calls "^rank $r \(pid [0-9]+\) is in all_reduce #5 of communicator [0-9a-f]{8} for [0-9.]+ s and waits for rank 1$"
done
said '^rank 1 \(pid [0-9]+\) is not in a call of Tutti; its last one was all_reduce #4, (at most )?[0-9.]+ s ago$'
said '^rank 4 \(pid [0-9]+\) has no communicator: it waits in tutti_init, or is not in a call of Tutti$'
[ "$(sed 's/^rank \([0-9]\).*/\1/' out | tr -d '\n')" = 01234 ] || complain "not a line a rank, in their order: $(cat out)"

# ---- the table, in the order of ranks, and the dump of the whole job
expect 0 $top --once -i 0.05 $job
[ "$(awk 'NR > 1 { printf "%s", $2 }' out)" = 0123 ] || complain "tutti-top's ranks: $(cat out)"
[ "$(awk 'NR > 1 { print $4 }' out | sort -u | wc -l)" = 1 ] || complain "one communicator: $(cat out)"
expect 0 $trace dump $job -o all.json
# Unless rank 1's fifth call waited it has no time of its own: then it is not younger than the others' sixth.
$trace calls $job >out
longest=$(sed -n 's/^rank 1 .* at most \([0-9.]*\) s ago$/\1/p' out)
awk -v most="$longest" '/^rank 0 / { sub(/.*[0-9a-f] for /, ""); exit most != "" && $1 > most }' out || complain "not so long ago: $(cat out)"
if grep -qE '"rank":1,[^}]*"sequence":4,[^}]*"time":"between' all.json; then
	[ -n "$longest" ] || complain "a time that no clock has seen: $(cat out)"
fi
[ "$(grep -o '"process_name"' all.json | wc -l)" = 4 ] || complain "not four ranks: $(head -c 1500 all.json)"

# ---- calls of the living ranks
for call in agree shrink grow; do
	"$BUILD_DIR/launch/tuttirun" -n 2 "$BUILD_DIR/tests/trace_main" wait:1:go $call >log 2>&1 & other=$!
	trap 'kill -KILL $job $other; wait $job $other 2>/dev/null; rm -rf "$scratch"' EXIT
	for _ in $(seq 200); do
		$trace calls $other >out 2>err && grep -qE "^rank 0 .* is in comm_$call of communicator [0-9a-f]{8} for [0-9.]+ s" out && break
		sleep 0.05
	done
	said "^rank 0 .* is in comm_$call of"
	said '^rank 1 .* is not in a call of Tutti$'
	expect 0 $top --once -i 0.05 $other
	said "comm_$call  *under way"
	kill -KILL $other
	wait $other 2>/dev/null
done

# ---- a job without communicators, and bad lines
"$BUILD_DIR/launch/tuttirun" --timeout 100 -n 1 sleep 100 & other=$!
trap 'kill -KILL $job $other; wait $job $other 2>/dev/null; rm -rf "$scratch"' EXIT
until grep -q '[0-9]' "/proc/$other/task/$other/children" && [ "$(cat /proc/$other/comm)" = tuttirun ]; do sleep 0.01; done
expect 4 $trace dump $other
said "^tutti-trace: No rank of tuttirun, process $other, has a communicator now\.$" err
expect 4 $top --once -i 0.05 $other
expect 2 $trace calls
expect 2 $trace calls -o file $job
exit $failures
