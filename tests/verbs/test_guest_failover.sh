#!/usr/bin/env bash
# guest: it cuts cables of its devices
# What would break: messages go by all ports that two ranks have; when a port's cable is cut, the others have to do, whichever
# it is, and nothing is lost or comes twice; when all are cut both ranks say so.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
[ -e /sys/class/infiniband/rxe_left1 ] || { echo "this is not the guest, or it has one device of each side"; exit 77; }
export TUTTI_WINDOW=0 TUTTI_TRANSPORTS=verbs TUTTI_LOG=info

cat >rank <<'END'
#!/bin/sh
[ "$RANK" = 0 ] && side=left || side=right
TUTTI_VERBS_DEVICES=rxe_${side}0,rxe_${side}1 exec "$@" >>said 2>&1
END
chmod +x rank

# cable NUMBER PERCENT: so much of what passes it is lost.
cable()
{
	tc qdisc replace dev "left$1" root netem loss "$2%" && tc qdisc replace dev "right$1" root netem loss "$2%"
}
trap 'cable 0 0; cable 1 0; rm -rf "$scratch"' EXIT
packets()
{
	cat "/sys/class/net/left$1/statistics/tx_packets"
}

# start COMMAND...: two ranks in the background, until both cables have carried some of their bytes.
start()
{
	local number before=("$(packets 0)" "$(packets 1)")
	: >said
	"$BUILD_DIR/tests/ranks" -n 2 -t 800 -e SEED=5 ./rank timeout 780 "$@" >>said 2>&1 &
	ranks=$!
	for number in 0 1; do
		while [ $(($(packets $number) - before[number])) -lt 500 ]; do
			kill -0 $ranks 2>/dev/null || { complain "it ended before cable $number was in use: $(cat said)"; return 1; }
			sleep 0.1
		done
	done
}

perf=("$BUILD_DIR/perf/all_reduce_perf" -b 300000 -e 300000 -w 1 -n 80)
for number in 0 1; do
	# Registered memory in the first round.
	[ $number = 0 ] && memory=(--zero-copy) || memory=()
	start "${perf[@]}" "${memory[@]}" && cable $number 100
	wait $ranks
	code=$?
	[ $code = 0 ] || complain "with cable $number cut it ended with $code: $(cat said)"
	grep -q "the other ports have to do" said || complain "with cable $number cut nobody noticed: $(cat said)"
	cable $number 0
done

# Short messages and long ones, of all functions.
start "$BUILD_DIR/tests/api" world large messages && cable 0 100
wait $ranks || complain "the api's messages, with cable 0 cut: $(cat said)"
cable 0 0

start "${perf[@]}" && { cable 1 100; cable 0 100; }
wait $ranks && complain "two cut cables went unnoticed: $(cat said)"
grep -qE 'rank [01].*(verbs|transport retry)' said || complain "nobody says who: $(cat said)"
exit $failures
