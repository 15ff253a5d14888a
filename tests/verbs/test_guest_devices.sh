#!/usr/bin/env bash
# guest: it is about the devices there
# What would break: programs that use verbs do not reach each other in the guest, or its cables lose and delay nothing.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
[ -e /sys/class/infiniband/rxe_left0 ] || { echo "this is not the guest"; exit 77; }
trap '"$SOURCE_DIR/tests/verbs/netem" 0 0; rm -rf "$scratch"' EXIT

# between DEVICE DEVICE PROGRAM...: a process of each; $passed is how many packets took the cable.
between()
{
	local server before
	before=$(</sys/class/net/left0/statistics/tx_packets)
	timeout 600 "${@:3}" -d "$1" >server 2>&1 &
	server=$!
	until ss -ltn | grep -q ':18515 '; do
		kill -0 $server || break
	done
	expect 0 timeout 600 "${@:3}" -d "$2" 127.0.0.1
	wait $server || complain "the server of $*: $(cat server)"
	passed=$(($(</sys/class/net/left0/statistics/tx_packets) - before))
}

between rxe_left0 rxe_left0 ibv_rc_pingpong -g 1 -n 100
[ $passed -lt 100 ] || complain "$passed packets from a device to itself took the cable"
between rxe_left0 rxe_right0 ibv_rc_pingpong -g 1 -n 100
[ $passed -ge 100 ] || complain "only $passed packets took the cable"

"$SOURCE_DIR/tests/verbs/netem" 0 20
between rxe_left0 rxe_right0 ibv_rc_pingpong -g 1 -n 10
awk '/usec\/iter/ && $7 >= 39000 { late = 1 } END { exit !late }' out || complain "nothing is late: $(cat out)"

# ibv_rc_pingpong would not do here: if the last acknowledgement is lost, nobody is left to send it again.
"$SOURCE_DIR/tests/verbs/netem" 5 0
between rxe_left0 rxe_right0 ib_write_lat -F -x 1 -n 200
lost=$(tc -s qdisc show dev left0 | sed -n 's/.*(dropped \([0-9]*\),.*/\1/p')
[ "$lost" -gt 0 ] || complain "nothing is lost"
exit $failures
