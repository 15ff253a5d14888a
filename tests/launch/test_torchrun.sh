#!/usr/bin/env bash
# slow: 20 s
# no_asan, no_tsan: Python takes most of its time
# What would break: ranks that torchrun starts: on one machine and as two, found by its static and its c10d
# rendezvous, and started again.
set -u
. "$SOURCE_DIR/tests/launch/launchers.sh"
needs torchrun python3
# Debian's torch 1.13.1 takes no number for these two under Python 3.11; this names a rank that is not there.
torchrun="python3 -m torch.distributed.run --redirects 9:0 --tee 9:0 --monitor_interval 0.2"
[ -n "$(PATH=/usr/bin:$PATH python3 -c "import importlib.util as u; print(u.find_spec('torch') or '')")" ] || { echo "torchrun is not installed"; exit 77; }
export PATH=/usr/bin:$PATH OMP_NUM_THREADS=1

# ---- one machine; rank 1 fails once, and torchrun starts all again
port 29700
expect 0 $limit $torchrun --no_python --nproc_per_node 4 --master_port "$port" --max_restarts 1 "$program" once
[ -e once ] || complain "nobody has failed"
four

# ---- two agents, as on two machines: each is told where node 0 is, or they find each other
# both OPTIONS...: node 0 in the background.
both()
{
	expect_node 0 "$@" & local first=$!
	expect_node 1 "$@"
	wait $first
	cat out.0 out.1 >out
	cat err.0 err.1 >err
	[ "$(cat code.0 code.1 | tr -d '\n')" = 00 ] || complain "exit codes $(cat code.0 code.1): $(tail -5 err)"
	four
}

expect_node()
{
	local node=$1
	shift
	$limit $torchrun --no_python --nnodes 2 --nproc_per_node 2 ${static:+--node_rank $node} "$@" "$program" >"out.$node" 2>"err.$node"
	echo $? >"code.$node"
}

port $((port + 1))
static=yes both --master_addr 127.0.0.1 --master_port "$port"
port $((port + 1))
static="" both --rdzv_backend c10d --rdzv_endpoint "127.0.0.1:$port" --rdzv_id tutti
exit $failures
