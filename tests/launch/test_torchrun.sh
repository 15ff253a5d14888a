#!/usr/bin/env bash
# slow: 20 s
# no_asan, no_tsan: Python takes most of its time
# What would break: ranks that torchrun starts: on one machine and as two, found by its static and its c10d
# rendezvous, and started again.
set -u
. "$SOURCE_DIR/tests/launch/launchers.sh"
. "$SOURCE_DIR/tests/launch/torchrun.sh"

# ---- one machine; rank 1 fails once, and torchrun starts all again
port
expect 0 $limit $torchrun --no_python --nproc_per_node 4 --master_port "$port" --max_restarts 1 "$program" once
[ -e once ] || complain "nobody has failed"
four

# ---- two agents, as on two machines: each is told where node 0 is; or they find each other, which test_torchrun_hosts tries
# between hosts, where there can be such
port
agents="--master_addr 127.0.0.1 --master_port $port" static=yes both "$program"
four
if ! unshare -mnu ip link add n1 type veth peer name n2 2>/dev/null; then
	port
	agents="--rdzv_backend c10d --rdzv_endpoint 127.0.0.1:$port --rdzv_id tutti" static="" both "$program"
	four
fi
exit $failures
