#!/usr/bin/env bash
# slow: 20 s
# What would break: a parameter server that learns something else than DDP; a worker that is further ahead than it may be, or
# that is held back where it need not be; a job that hangs, or ends without a reason, when a worker or a server is killed.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
server=$BUILD_DIR/examples/parameter_server/parameter_server
dying=$BUILD_DIR/tests/dying_parameter_server
tuttirun=$BUILD_DIR/launch/tuttirun
unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_RESTARTED TUTTI_MAX_RESTARTS
export TUTTI_TIMEOUT_MS=60000

# As expect; also no rank has a report of a sanitizer, whatever its exit code.
run()
{
	expect "$@"
	grep -hA 20 Sanitizer out err && complain "a sanitizer's report"
}

# near A B LIMIT: the lines of two outputs are the same steps, and their losses differ by so much at most, relatively.
near()
{
	paste "$1" "$2" | awk -v limit="$3" '
		function far(a, b) { return (a > b ? a - b : b - a) / b }
		NF != 6 || $(NF / 2) !~ /^[0-9.]+$/ || $NF !~ /^[0-9.]+$/ {
			if ($1 != "step" || NF != 8 || $2 != $6) { print "another line: " $0; exit 1 }
		}
		{ lines++; if (far($(NF / 2), $NF) > limit) { print "too far: " $0; exit 1 } }
		END { if (lines < 2) { print "only " lines + 0 " lines"; exit 1 } }' || complain "near $*"
}

final()
{
	sed -n 's/^final loss //p' "$1"
}

# Servers and workers: also odd numbers, more servers than divide what they hold, and servers that are workers, too.
for counts in "1 1" "2 2" "3 4" "1 0" "4 0"; do
	read -r servers workers <<<"$counts"
	replicas=$((workers ? workers : servers))
	run 0 timeout 200 "$server" --ranks $((servers + workers)) --servers "$servers" --steps 60 --print-every 1
	cp out ours
	run 0 timeout 200 "$server" --ranks $replicas --ddp --steps 60 --print-every 1
	[ "$(wc -l <ours)" = 61 ] || complain "$counts: not 60 losses and the final one: $(tail -2 ours)"
	near ours out 1e-5
done

# The bits are the same in every run: pushes are applied in the order of workers.
run 0 timeout 200 "$server" --ranks 5 --servers 2 --steps 60
cp out first
run 0 timeout 200 "$server" --ranks 5 --servers 2 --steps 60
cmp first out || complain "another run has other losses"

# To the end, with all workers at their own pace: it learns, and what DDP learns.
run 0 timeout 200 "$server" --ranks 3 --ddp
ddp=$(final out)
run 0 timeout 200 "$server" --ranks 4 --staleness 4
awk -v ddp="$ddp" -v ours="$(final out)" -v first="$(awk 'NR == 1 { print $4 }' out)" 'BEGIN {
	if (ddp > 0 && ours > 0 && ours < first / 5 && ours < 1.1 * ddp && ours > 0.9 * ddp) exit 0
	print "stale: " ours " at the end, of " first " at first; DDP: " ddp; exit 1 }' || failures=1

# Exactly as far ahead as they may be, when one worker is slow.
for staleness in 0 1 3; do
	truncate -s 0 clocks && truncate -s 4096 clocks
	LAG=$staleness CLOCKS=clocks WORKERS=3 STEPS=20 run 0 timeout 200 \
		"$tuttirun" -n 5 "$dying" --servers 2 --staleness $staleness --steps 20
done

# killed CODE RANKS DIES ARGUMENTS...: a job of which one rank kills itself. What rank 0 prints is in ./printed, all else in ./out.
killed()
{
	local code=$1 n=$2 dies=$3
	shift 3
	run "$code" timeout 200 "$BUILD_DIR/tests/ranks" -k -n "$n" -t 150 -e DIES="$dies" /bin/sh -c '
		[ "$RANK" != 0 ] || exec >printed
		exec "$0" "$@"' "$dying" "$@"
}

# A worker is killed in the middle: the others go on, also those that wait for it.
for job in "0 5 2" "2 4 1"; do
	read -r staleness n servers <<<"$job"
	killed 0 "$n" 3:100 --servers "$servers" --staleness $staleness --steps 100 --print-every 1
	[ "$(wc -l <printed)" = 101 ] || complain "staleness $staleness: not all steps after a worker's death: $(tail -2 printed)"
	awk -v ours="$(final printed)" -v first="$(awk 'NR == 1 { print $4 }' printed)" \
		'BEGIN { exit !(ours > 0 && ours < first / 2) }' ||
		complain "staleness $staleness: it does not learn after a worker's death: $(tail -1 printed)"
done
# The same with the launcher, as docs/parameter-server.md has it.
DIES=3:20 run 0 timeout 200 "$tuttirun" -n 5 --max-restarts 1 --restart rank "$dying" --servers 2 --staleness 4
said 'rank 3 .*it is started again'
said '^final loss' out

# A server is killed: all end, and each says which rank it was. The last worker is killed: the server says so.
killed 1 4 1:50 --servers 2 --steps 1000
said 'worker rank [23], step [0-9]+: .*rank 1' out
grep -q '^final' printed && complain "a final loss without a server's parameters: $(cat printed)"
killed 1 2 1:50 --steps 1000
said 'no worker has come to the end' out

# What cannot be is refused.
run 1 "$server" --ranks 2 --servers 3
said 'more servers than ranks'
run 1 "$server" --staleness -1
said '--help says which there are'
run 1 "$server" --steps 10x
exit $failures
