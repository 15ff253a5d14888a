#!/usr/bin/env bash
# slow: 4 s
# What would break: devices, numbers of ranks and ports in everybody's spelling, logs of ranks, dry runs, and what is said
# about a wrong value.
set -u
. "$SOURCE_DIR/tests/launch/launchers.sh"
run="timeout -k 5 60 $BUILD_DIR/launch/tuttirun"
unset CUDA_VISIBLE_DEVICES

# prints TEXT ARGUMENTS...: so the ranks of tuttirun ARGUMENTS see their number, port and devices.
prints()
{
	local text=$1
	shift
	# shellcheck disable=SC2016
	expect 0 $run "$@" sh -c 'echo $RANK/$WORLD_SIZE $MASTER_ADDR ${CUDA_VISIBLE_DEVICES-all}'
	[ "$(sort out | tr '\n' ';')" = "$text" ] || complain "$* prints $(sort out | tr '\n' ';')"
}

# ---- devices, numbers of ranks
prints '0/2 127.0.0.1 0,1;1/2 127.0.0.1 0,1;' -g 0 1
prints '0/2 127.0.0.1 2,0;1/2 127.0.0.1 2,0;' --devices 2,0
prints '0/1 127.0.0.1 GPU-1a,MIG-2/0;' --gpus=GPU-1a,MIG-2/0 -n 1
prints '0/2 h all;1/2 h all;' --nproc_per_node 2 --master_addr h
prints '0/2 fe80::1%eth0 all;1/2 fe80::1%eth0 all;' --nproc_per_node 2 --master_addr '[fe80::1%eth0]'
prints '0/2 127.0.0.1 all;1/2 127.0.0.1 all;' -np 2
prints '0/2 127.0.0.1 0,3;1/2 127.0.0.1 0,3;' --nproc-per-node auto --devices 0,3
CUDA_VISIBLE_DEVICES=4,5,6 prints '0/3 127.0.0.1 4,5,6;1/3 127.0.0.1 4,5,6;2/3 127.0.0.1 4,5,6;' -n gpu
expect 0 env CUDA_VISIBLE_DEVICES= $run --nproc-per-node=auto true
CUDA_VISIBLE_DEVICES='' expect 0 taskset -c "$(taskset -cp $$ | sed 's/.*[ ,-]//')" $run -n auto echo one
[ "$(cat out)" = one ] || complain "-n auto on one CPU: $(cat out)"
CUDA_VISIBLE_DEVICES=4,-1,5 prints '0/1 127.0.0.1 4,-1,5;' -n gpu # CUDA's word for no more
CUDA_VISIBLE_DEVICES=-1 expect 2 $run -n gpu true
CUDA_VISIBLE_DEVICES='' expect 2 $run -n gpu true
said 'there is no GPU here; name a number of ranks'

# ---- ports: DeepMuon's -p beside our own
port
for option in "-p $port" "-p$port" "--port $port" "--master_port=$port"; do
	# shellcheck disable=SC2016,SC2086
	expect 0 $run $option -n 1 sh -c 'echo $MASTER_PORT'
	[ "$(cat out)" = "$port" ] || said "^tuttirun: port $port cannot be used \(Address already in use\); the job uses port $(cat out)$"
done
expect 0 $run -p -n 1 echo line
[ "$(cat out)" = '[0] line' ] || complain "-p alone: $(cat out)"

# ---- logs: both streams, what a restarted rank says, all up to the end of a job that is killed, or of its disk
expect 0 $run -n 2 --log-dir logs --max-restarts 1 --restart rank sh -c 'echo out; echo err >&2
	[ -n "$TUTTI_RESTARTED" ] && { : >back; exit; }; [ $RANK = 1 ] && exit 1; while [ ! -e back ]; do sleep 0.01; done'
[ "$(sort logs/rank_0.log | tr '\n' ' ')" = 'err out ' ] || complain "the log of rank 0: $(cat logs/rank_0.log)"
[ "$(sort logs/rank_1.log | tr '\n' ' ')" = 'err err out out ' ] || complain "the log of rank 1: $(cat logs/rank_1.log)"
[ "$(grep -c '^out$' out) $(grep -c '^err$' err)" = '3 3' ] || complain "not passed on as well: $(cat out err)"
mkfifo lines
"$BUILD_DIR/launch/tuttirun" -n 1 --log-dir logs sh -c 'echo last words; exec sleep 1000' >lines 2>err & pid=$!
timeout 60 sh -c "read line; kill -KILL $pid; cat" <lines
wait $pid 2>/dev/null
[ "$(cat logs/rank_0.log)" = 'last words' ] || complain "the log of a killed job: $(cat logs/rank_0.log)"
ln -sf /dev/full logs/rank_1.log
expect 0 $run -n 2 --log-dir logs echo line
said '^tuttirun: the log of rank 1 ends here: No space left'
[ "$(grep -c . out)" = 2 ] || complain "without a log there is no output: $(cat out)"
mkfifo logs/rank_2.log
expect 1 $run -n 3 --log-dir logs true # not a wait for a reader that does not come
said 'logs/rank_2.log cannot be written: No such device'
expect 1 $run -n 1 --log-dir no/where true
said 'the folder no/where cannot be made: No such file'

# ---- dry runs
expect 0 $run --dry-run -n 2 --mesh tp=2 -g 1 0 -- touch begun
[ ! -e begun ] || complain "a dry run runs"
said '^2 ranks, 2 on each of 1 node$' out
said '^command: touch begun$' out
said '^all ranks: WORLD_SIZE=2 .*MASTER_PORT=[0-9]+ CUDA_VISIBLE_DEVICES=1,0 TUTTI_SECRET=\(random\) TUTTI_MESH=tp=2$' out
said '^  rank 1: RANK=1 LOCAL_RANK=1 NODE_RANK=0 .*OMP_NUM_THREADS=[0-9]+ ' out
# The command is one for a shell.
expect 0 $run --dry-run -n 1 --trace-dir 'a folder' printf '<%s>' "it's" '' 'a  b' x=1
said '^1 rank, 1 on each of 1 node$' out
said "^all ranks: .* TUTTI_TRACE_DIR='a folder'$" out
[ "$(bash -c "$(sed -n 's/^command: //p' out)")" = "<it's><><a  b><x=1>" ] || complain "the command of a dry run: $(cat out)"
expect 0 $run --dry_run -n 2 --hosts a,me@b --ssh 'rsh -x' touch begun
[ ! -e begun ] || complain "a dry run on hosts runs"
said '^4 ranks, 2 on each of 2 nodes$' out
said '^all ranks: .*MASTER_ADDR=a ' out
said "^node 1, me@b: rsh -x me@b exec '?/.*/tuttirun'? --agent$" out
said '^  rank 3: RANK=3 LOCAL_RANK=1 NODE_RANK=1' out
mkdir "it's here"
cp "$BUILD_DIR/launch/tuttirun" "it's here"
expect 0 "it's here/tuttirun" --dry-run -n 1 --hosts a,b true
grep -qF "exec '$PWD/it'\\''s here/tuttirun' --agent" out || complain "the path of tuttirun for a shell: $(cat out)"
expect 0 $run --dry-run -n 1 --hosts a,b true
said '^node 0, a: ssh -o BatchMode=yes -o ConnectTimeout=60 -o ServerAliveInterval=15 a exec' out

# ---- progress: where there is no terminal; test_progress_line.sh has one
expect 0 $run --progress -n 2 true
[ ! -s err ] || complain "progress where there is no terminal: $(cat err)"

# ---- programs that do not start: why not
# starts CODE PROGRAM MESSAGE
starts()
{
	expect "$1" $run -n 2 "$2"
	said "^tuttirun: '$2' cannot be started: $3\.$"
}
printf '#!/usr/bin/env python3\n' >train.py
printf '#!/no/interpreter\n' >script
cp /bin/true prog
chmod +x script prog
starts 127 train.py 'No such file or directory; a program in Python is started by its interpreter: python3 train\.py'
starts 126 ./train.py 'Permission denied; a program in Python is started by its interpreter: python3 \./train\.py'
starts 127 prog 'No such file or directory in PATH; the one in this folder is \./prog'
starts 127 ./script 'No such file or directory; the file is there, but not the interpreter that it names'
starts 127 no_program 'No such file or directory'
# Also where a folder of PATH may not be entered, as one in another user's home. (Root may.)
mkdir -m 0 closed
PATH=$PATH:$PWD/closed starts 127 no_program 'No such file or directory'
starts 126 /tmp 'Permission denied'

# ---- wrong values: what to do
# wrong ARGUMENTS... PATTERN
wrong()
{
	# shellcheck disable=SC2086
	expect 2 $run $1 true
	said "^tuttirun: $2"
	[ "$(grep -c '^tuttirun: ' err)" = 1 ] || complain "more than a line: $(cat err)"
}
wrong '-n 2 --devices 0,,1' "'0,,1' is not a value for --devices: give GPUs, each of them once, such as 0,1\.$"
wrong '-n 2 -g 0 1 0' "'0' is not a value for -g: give GPUs"
wrong '-n 2 --gpus all' "'all' is not a value for --gpus: give GPUs, each of them once, such as 0,1\.$"
wrong '-g' "'true' is not a value for -g: give GPUs"
wrong '--nproc-per-node all' "'all' is not a value for --nproc-per-node: give a number from 1 to 4096, auto, gpu or cpu\.$"
wrong '-n 2 --port x' "'x' is not a value for --port: give a port from 1 to 65535\.$"
for master in nodea nodea: nodea:0 nodea:x :29500 'nodea:+1' fd98:7::1 fd98:7::1:29500 '[fd98:7::1]' '[nodea]:1' 'fe80::1%eth0:1' a,b:1 '[fe80::1]:1'; do
	wrong "-n 2 --master $master" ".* is not a value for --master: give HOST:PORT; an IPv6 address has brackets, as in \\[fd98::1\\]:29500, and a link-local one a scope, as in \\[fe80::1%eth0\\]:29500\\.\$"
done
wrong '-n 2 --master-addr nodea:1' "'nodea:1' is not a value for --master-addr: give a host, without a port; a link-local IPv6 address has a scope, as in fe80::1%eth0\.$"
wrong '-n 2 --master-addr fe80::1' "'fe80::1' is not a value for --master-addr: give a host"
wrong '-n 2 -p 70000' "'70000' is not a value for --port: give a port"
wrong '-n 2 --log-dir=' "'' is not a value for --log-dir: give one that is not empty\.$"
wrong '-n 2 --restart some' "'some' is not a value for --restart: give rank or job\.$"
wrong '' '-n is missing: how many ranks shall run\?$'
wrong '-n 2 --restart job' '--restart needs --max-restarts, the number of times\.$'
# Options that there are not: the letter and not another word, what it takes, what it may be.
wrong '-n 2 -px' 'unknown option -x\.$'
wrong '-xn 2' 'unknown option -x\.$'
wrong '-n 2 -é' 'unknown option -.xc3\.$'
wrong '-n 2 --wrong=1' 'unknown option --wrong\.$'
wrong '-n 2 --devcies 0' 'unknown option --devcies: did you mean --devices\?$'
wrong '-n 2 --dry_run=1' '--dry-run takes no value\.$'
wrong '-n 2 --host a' '--host is short for several options: --hosts, --hostfile\.$'
exit $failures
