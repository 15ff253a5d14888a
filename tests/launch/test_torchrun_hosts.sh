#!/usr/bin/env bash
# slow: 10 s
# no_asan, no_tsan: Python takes most of its time
# What would break: ranks that two agents of torchrun start, each on a host of its own, which are told where node 0 is (static) or
# find each other there (c10d).
set -u
. "$SOURCE_DIR/tests/launch/launchers.sh"
. "$SOURCE_DIR/tests/launch/torchrun.sh"
. "$SOURCE_DIR/tests/launch/two_hosts.sh"
export TUTTI_SECRET=ours

# both_hosts: four ranks that find each other, two on each host.
both_hosts()
{
	both sh -c 'hostname; exec "$0"' "$program"
	four
	[ "$(grep '^n' out | sort | uniq -c | tr -s ' \n' ' ')" = ' 2 n1 2 n2 ' ] || complain "two hosts with two ranks each: $(cat out)"
}

agents="--master_addr n1 --master_port 29700" static=yes both_hosts
agents="--rdzv_backend c10d --rdzv_endpoint n1:29701 --rdzv_id tutti" static="" both_hosts
exit $failures
