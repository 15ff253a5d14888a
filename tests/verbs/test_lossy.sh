#!/usr/bin/env bash
# guest: it is about packets of its cables
# What would break: collectives over a network that loses and delays packets: wrong values, or an end that says nothing.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
[ -e /sys/class/infiniband/rxe_left0 ] || { echo "this is not the guest"; exit 77; }
trap '"$SOURCE_DIR/tests/verbs/netem" 0 0; rm -rf "$scratch"' EXIT
export TUTTI_WINDOW=0 TUTTI_TRANSPORTS=verbs

# over_cable COMMAND...: two ranks with a cable between them.
cat >rank <<'END'
#!/bin/sh
[ "$RANK" = 0 ] && side=left || side=right
TUTTI_VERBS_DEVICES=rxe_${side}0 exec "$@"
END
chmod +x rank
over_cable()
{
	"$BUILD_DIR/tests/ranks" -n 2 -t 800 -e SEED=5 ./rank "$@"
}
packets()
{
	cat /sys/class/net/left0/statistics/tx_packets
}

before=$(packets)
expect 0 over_cable "$BUILD_DIR/tests/api" world small messages
[ $(($(packets) - before)) -gt 1000 ] || complain "only $(($(packets) - before)) packets took the cable"

"$SOURCE_DIR/tests/verbs/netem" 1 1
expect 0 over_cable "$BUILD_DIR/tests/api" programs
lost=$(tc -s qdisc show dev left0 | sed -n 's/.*(dropped \([0-9]*\),.*/\1/p')
[ "$lost" -gt 0 ] || complain "nothing is lost"

# A cable that is cut: retries end, and both ranks end with an error that has a name.
"$SOURCE_DIR/tests/verbs/netem" 100 0
over_cable timeout 780 "$BUILD_DIR/perf/all_reduce_perf" -b 1M -e 1M >out 2>&1 && complain "a cut cable went unnoticed: $(cat out)"
grep -qE 'rank [01]' out || complain "nobody says who: $(cat out)"
exit $failures
