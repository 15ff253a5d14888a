# torchrun for the tests of launchers: $torchrun. To be sourced after launchers.sh. TORCH_PYTHON: whose, /usr/bin/python3 if not set.
python=${TORCH_PYTHON:-/usr/bin/python3}
if [ -z "$("$python" -c "import importlib.util as u; print(u.find_spec('torch') or '')" 2>/dev/null)" ]; then
	echo "torchrun is not installed"
	exit 77
fi
# Debian's torch 1.13.1 takes no number for these two under Python 3.11; this names a rank that is not there.
torchrun="$python -m torch.distributed.run --redirects 9:0 --tee 9:0 --monitor_interval 0.2"
export OMP_NUM_THREADS=1

# both COMMAND...: two agents, each with two ranks of COMMAND: node 0 here, in the background, and node 1 by $on_n2. $agents has
# the options of both; $static: node numbers are given, else the agents find them.
both()
{
	node 0 "" "$@" & local first=$!
	node 1 "${on_n2-}" "$@"
	wait $first
	cat out.0 out.1 >out
	cat err.0 err.1 >err
	[ "$(cat code.0 code.1 | tr -d '\n')" = 00 ] || complain "exit codes $(cat code.0 code.1): $(tail -5 err)"
}

node()
{
	local node=$1 there=$2
	shift 2
	$limit $there $torchrun --no_python --nnodes 2 --nproc_per_node 2 ${static:+--node_rank $node} $agents "$@" >"out.$node" 2>"err.$node"
	echo $? >"code.$node"
}
