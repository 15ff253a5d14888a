#!/usr/bin/env bash
# slow: 10 s
# What would break: an answer that is not what the client computes, whatever else was in its batch; a queue without a bound; a
# job that hangs, or ends without a reason, when a client or the server is killed.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
server=$BUILD_DIR/examples/inference_server/inference_server
dying=$BUILD_DIR/tests/dying_inference_server
tuttirun=$BUILD_DIR/launch/tuttirun
unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_RESTARTED TUTTI_MAX_RESTARTS
export TUTTI_TIMEOUT_MS=60000

# As expect; also no rank has a report of a sanitizer, whatever its exit code.
run()
{
	expect "$@"
	grep -hA 20 Sanitizer out err && complain "a sanitizer's report"
}

# With sanitizers the model takes a hundred times as long.
part=33
grep -q '^CMAKE_C_FLAGS:.*-fsanitize' "$BUILD_DIR/CMakeCache.txt" && part=9

# row MODE COLUMN: a number of the table. Columns: requests, a second, batch, refused, p50, p90, p99, max.
row()
{
	sed -n "s/^$1 *//p" out | awk -v column="$2" '{ print $column }'
}

# served REQUESTS: the table is whole, and its numbers can be.
served()
{
	local mode
	for mode in "one at a time" "batched  "; do
		[ "$(row "$mode" 1)" = "$1" ] || complain "$mode: not $1 requests: $(cat out)"
		row "$mode" 0 >row
		awk 'NF != 8 || $2 <= 0 || $5 <= 0 || $6 < $5 || $7 < $6 || $8 < $7 { exit 1 } END { exit NR != 1 }' <<<"$(
			sed -n "s/^$mode *//p" out)" || complain "$mode: $(cat out)"
	done
	[ "$(row 'one at a time' 3)" = 1.0 ] || complain "batches, where there should be none: $(cat out)"
}

for ranks in 1 2 4; do
	run 0 timeout 200 "$server" --ranks $ranks --requests $part --rounds 2
	served $((part * 2 * (ranks > 1 ? ranks - 1 : 1)))
done
# Batches that do not divide the requests; a batch is full long before its delay is over.
run 0 timeout 200 "$server" --ranks 4 --batch 7 --in-flight 13 --requests $((3 * part + 2)) --rounds 1 --delay-us 300000
served $((3 * (3 * part + 2)))
awk -v batch="$(row batched 3)" 'BEGIN { exit !(batch > 3 && batch <= 7) }' || complain "no batches of 7: $(cat out)"
# A queue that is too short for the clients: some tries are refused, and all requests are answered.
run 0 timeout 200 "$server" --ranks 3 --queue 2 --in-flight 8 --requests 50 --rounds 1
served 100
awk -v refused="$(row 'one at a time' 4)" 'BEGIN { exit !(refused > 0) }' || complain "nothing was refused: $(cat out)"

# killed CODE DIES: a job of four of which one rank kills itself. What rank 0 prints is in ./printed, all else in ./out.
killed()
{
	run "$1" timeout 200 "$BUILD_DIR/tests/ranks" -k -n 4 -t 150 -e DIES="$2" /bin/sh -c '
		[ "$RANK" != 0 ] || exec >printed
		exec "$0" "$@"' "$dying" --requests 50 --rounds 1
}

# A client is killed: the others go on. The server is killed: the clients say so.
killed 0 2:40
said 'batched has x' printed
killed 1 0:40
said 'client rank [123]: .*rank 0' out
DIES=2:10 run 0 timeout 200 "$tuttirun" -n 4 --max-restarts 1 --restart rank "$dying" --requests $((6 * part)) --rounds 2
said 'rank 2 .*it is started again'
said 'batched has x' out

# A rank with another secret does not get in, and nobody waits for it.
TUTTI_TIMEOUT_MS=3000 run 1 timeout 200 "$tuttirun" -n 2 /bin/sh -c '
	[ "$RANK" = 0 ] || export TUTTI_SECRET=another
	exec "$0" "$@"' "$server" --requests 20 --rounds 1
said 'cannot prove that it knows|does not know|secret'

run 1 "$server" --batch 0
said '--help says which there are'

# A model from a file; and one that differs from the clients', whose answers are noticed.
"$server" --export model.safetensors 2>err
if grep -q jansson err; then
	echo "jansson is not installed"
	exit $((failures ? 1 : 77))
fi
run 0 timeout 200 "$server" --ranks 2 --model model.safetensors --requests 20 --rounds 1
printf '\0\0\200\077' | dd of=model.safetensors bs=1 conv=notrunc seek=$(($(stat -c %s model.safetensors) - 4)) 2>dd
run 1 timeout 200 "$tuttirun" -n 2 /bin/sh -c '
	if [ "$RANK" = 0 ]; then exec "$0" --model model.safetensors "$@"; else exec "$0" "$@"; fi' \
	"$server" --requests 20 --rounds 1
said 'client rank 1: an answer of rank 0 differs in output [0-9]+'
exit $failures
