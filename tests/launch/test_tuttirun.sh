#!/usr/bin/env bash
# slow: 7 s
# What would break: how jobs are started, heard, signalled and ended. Every wait is for a condition (a line in
# a fifo, its end) and has `timeout` around it.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
run="timeout -k 5 60 $BUILD_DIR/launch/tuttirun"
unset TUTTI_SECRET TUTTI_SECRET_FILE

# ---- the environment of the ranks
# shellcheck disable=SC2016
expect 0 $run -n 3 sh -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $GROUP_RANK $MASTER_ADDR'
sort out | cmp -s - <(printf '%d 3 %d 3 0 0 127.0.0.1\n' 0 0 1 1 2 2) || complain "environment: $(cat out)"
# shellcheck disable=SC2016
expect 0 $run -n 2 sh -c 'echo $TUTTI_SECRET $MASTER_PORT $TUTTIRUN_JOB'
[ "$(sort -u out | grep -cE '^[0-9a-f]{64} [0-9]+ [0-9]+$')" = 1 ] || complain "secret: $(cat out)"
cut -d' ' -f1 out | sort -u >first
# shellcheck disable=SC2016
expect 0 $run -n 1 sh -c 'echo $TUTTI_SECRET'
cmp -s first out && complain "two jobs have the same secret"

# ---- ports: a job keeps its port from others, which move on or, with several machines, are told
# shellcheck disable=SC2016
expect 0 $run -n 1 sh -c 'echo $MASTER_PORT; exec "$@"' - $run -n 1 sh -c 'echo $MASTER_PORT'
[ "$(sort -u out | wc -l)" = 2 ] || complain "two jobs at once have one port: $(cat out)"
# shellcheck disable=SC2016
expect 0 $run -n 1 sh -c 'echo $MASTER_PORT; exec "$@" --master-port $MASTER_PORT -n 1 sh -c "echo \$MASTER_PORT"' - $run
[ "$(sort -u out | wc -l)" = 2 ] || complain "a port that is taken was used: $(cat out)"
said 'port [0-9]+ cannot be used \(Address already in use\); the job uses port [0-9]+'
# shellcheck disable=SC2016
expect 1 $run -n 1 sh -c 'TUTTI_SECRET=x exec "$@" --nnodes 2 --node-rank 0 --master 127.0.0.1:$MASTER_PORT -n 1 true' - $run
said 'port [0-9]+ cannot be used'

# ---- output: whole lines, to where they belong, nothing lost, nothing in memory without end
expect 0 $run -n 4 sh -c 'seq 50000; seq 50001 60000 >&2'
for _ in 1 2 3 4; do seq 50000; done | sort | cmp -s - <(sort out) || complain "stdout is not what was written"
for _ in 1 2 3 4; do seq 50001 60000; done | sort | cmp -s - <(sort err) || complain "stderr is not what was written"
expect 0 $run -n 2 printf 'a\nlast'
sort out | cmp -s - <(printf 'a\na\nlast\nlast\n') || complain "last lines without newline: $(cat out)"
expect 0 $run -p -n 2 printf 'a\nb'
sort out | cmp -s - <(printf '[0] a\n[0] b\n[1] a\n[1] b\n') || complain "prefix: $(cat out)"
expect 0 $run -n 1 printf 'a\0b\nlast'
cmp -s out <(printf 'a\0b\nlast') || complain "one rank's output is not passed byte for byte"
expect 0 $run -n 2 sh -c 'head -c 300000 /dev/zero | tr "\0" x; echo'
[ "$(wc -c <out) $(wc -l <out)" = "600002 2" ] || complain "lines longer than any buffer: $(wc out)"
# shellcheck disable=SC2016
expect 0 $run -p -n 2 sh -c 'for _ in 1 2 3; do head -c 300000 /dev/zero | tr "\0" $RANK; echo; done'
[ "$(sort out | tr -s 01)" = "$(printf '[0] 0\n%.0s' 1 2 3; printf '[1] 1\n%.0s' 1 2 3)" ] ||
	complain "long lines of two ranks are mixed: $(tr -s 01 <out | cut -c 1-200)"
# A rank that stops within a long line does not keep the others out: what they write is read, in lines of its own.
# shellcheck disable=SC2016
expect 0 $run -p -n 2 sh -c 'if [ $RANK = 0 ]; then head -c 100000 /dev/zero | tr "\0" 0
		: >begun; while [ ! -e over ]; do sleep 0.01; done; echo
	else while [ ! -e begun ]; do sleep 0.01; done; head -c 300000 /dev/zero | tr "\0" 1; echo; : >over; fi'
[ "$(tr -s 01 <out | grep -vc '^\[0\] 0*$')" = 1 ] && tr -s 01 <out | grep -qx '\[1\] 1' ||
	complain "a line that does not end: $(tr -s 01 <out | cut -c 1-200)"
$run -n 4 yes 2>err | head -1 >out
[ "${PIPESTATUS[0]}" = 141 ] || complain "the end of its reader did not end the job"
[ ! -s err ] || complain "noise about a reader that has left: $(cat err)"
# A reader that has left is no excuse for a crash.
# shellcheck disable=SC2016
$run -n 2 sh -c 'trap "" PIPE; while echo line 2>/dev/null; do :; done; kill -SEGV $$' 2>err | head -1 >out
[ "${PIPESTATUS[0]}" = 139 ] || complain "a crash without a reader"
said 'was killed by signal 11'
# Output that is lost: the disk is full, or stdout is closed.
$run -n 2 echo line 2>err >/dev/full
[ $? = 3 ] || complain "a full disk: exit code"
said 'stdout cannot be written: No space left'
$run -n 2 echo line 2>err >&-
[ $? = 3 ] || complain "a closed stdout: exit code"
said 'stdout cannot be written: Bad file descriptor'
$run -n 2 true >&- || complain "nothing to write to a closed stdout"
# shellcheck disable=SC2016
expect 1 timeout -k 5 60 bash -c 'ulimit -n 12; exec "$@"' - "$BUILD_DIR/launch/tuttirun" -n 4 true
said 'Too many open files; tuttirun may have 12 open and needs two for each rank: raise .ulimit -n'

# ---- input
seq 3 >in
# shellcheck disable=SC2016
expect 0 $run -p -n 3 sh -c '[ $RANK = 0 ] && until [ -e read.1 ] && [ -e read.2 ]; do sleep 0.01; done; cat; : >read.$RANK' <in
cmp -s out <(sed 's/^/[0] /' in) || complain "stdin did not reach rank 0, and only it: $(cat out)"

# ---- ends
expect 0 $run -n 3 true
# shellcheck disable=SC2016
expect 7 $run -n 3 sh -c '[ $RANK = 1 ] && exit 7; exec sleep 1000'
said '^tuttirun: rank 1 \(pid [0-9]+\) exited with code 7; the job was ended$'
[ "$(wc -l <err)" = 1 ] || complain "more than one line on a failure: $(cat err)"
# shellcheck disable=SC2016
expect 137 $run -n 3 sh -c 'trap "" TERM; [ $RANK = 2 ] && echo last words && kill -9 $$; while :; do sleep 1000; done'
said '^tuttirun: rank 2 \(pid [0-9]+\) was killed by signal 9 \(Killed\); the job was ended$'
said 'last words' out
# shellcheck disable=SC2016
expect 3 $run -n 2 sh -c '[ $RANK = 0 ] && exec sleep 1000; printf half >&2; exit 3'
cmp -s <(head -1 err) <(echo half) || complain "the launcher's line is not one of its own: $(cat err)"
# Two have ended when tuttirun, which was stopped, looks: the one that ended first is named.
# shellcheck disable=SC2016
expect 5 $run -n 2 sh -c 'tuttirun=$PPID
	if [ $RANK = 1 ]; then kill -STOP $tuttirun; echo $$ >one; mv one first_is; exit 5; fi
	until [ -e first_is ]; do :; done; first=$(cat first_is); me=$$
	ended() { ! grep -q "^State:.[^Z]" /proc/$1/status; }
	(until ended $first && ended $me; do :; done; kill -CONT $tuttirun) &
	until ended $first; do :; done; exit 6'
said '^tuttirun: rank 1 \(pid [0-9]+\) exited with code 5; the job was ended$'
# A rank that sees another one fail can say what that means for it: here once tuttirun's own line is there.
# shellcheck disable=SC2016
expect 3 $run -n 2 sh -c '[ $RANK = 1 ] && exit 3; until grep -q "rank 1 .* exited with code 3" err; do :; done; echo lost rank 1 >&2; exit 4'
said '^lost rank 1$'
expect 124 $run --timeout 0.2 -n 2 sleep 1000
said 'it ran longer than 0.2 s'
expect 127 $run -n 2 ./there-is-none
said "'./there-is-none' cannot be started: No such file"
expect 126 $run -n 2 /etc/passwd

# ---- children of ranks: ended with a failed job, not waited for without end
# Everybody holds the fifo: its end shows that nobody is left.
mkfifo alive
# shellcheck disable=SC2016
$run -n 2 sh -c 'exec 9>alive; sh -c "trap : TERM; echo >&9; while :; do sleep 1000; done" & [ $RANK = 0 ] && wait; read x <go; exit 5' 2>err &
mkfifo go
timeout 30 sh -c 'exec <alive; read x; read x; echo >go; cat' || complain "children of a failed job live on"
wait $!
[ $? = 5 ] || complain "exit code of a rank with children"

# ---- signals
# with_ranks SCRIPT ACTION: two ranks run SCRIPT, which says "ready" through fd 9; then ACTION with $pid. A read
# from fd 8 never ends; signals interrupt it, and no child is there that would outlive the rank.
with_ranks()
{
	rm -f ready never
	mkfifo ready never
	"$BUILD_DIR/launch/tuttirun" --timeout 50 -n 2 sh -c "exec 9>ready 8<>never; $1" >out 2>err &
	pid=$!
	timeout 60 bash -c "exec <ready; read x; read x; pid=$pid; $2; cat >/dev/null" || complain "ranks outlived: $2"
	wait $pid
	code=$?
}

with_ranks 'trap "echo got; exit 0" USR1; echo >&9; while :; do read x <&8; done' 'kill -USR1 $pid'
[ "$code $(grep -c got out)" = "0 2" ] || complain "SIGUSR1: code $code, $(cat out)"
for signal in INT:130 TERM:143 HUP:129; do
	with_ranks 'echo >&9; exec sleep 1000' "kill -${signal%:*} \$pid"
	[ "$code" = "${signal#*:}" ] || complain "SIG${signal%:*}: code $code"
done
with_ranks 'trap "echo saved; exit 0" TERM; echo >&9; while :; do read x <&8; done' 'kill -TERM $pid'
[ "$code $(grep -c saved out)" = "0 2" ] || complain "ranks that end well after SIGTERM: code $code"
with_ranks 'trap "echo first >&9" INT; echo >&9; while :; do read x <&8; done' \
	'kill -INT $pid; read x; kill -INT $pid'
[ "$code" = 137 ] || complain "a second SIGINT: code $code"
# Who waits for ranks that do not end is told for how long.
with_ranks 'trap "" TERM; trap "echo >&9" INT; echo >&9; while :; do read x <&8; done' \
	'kill -TERM $pid; until grep -q "have not ended" err; do sleep 0.02; done; kill -INT $pid; read x; kill -INT $pid'
[ "$code" = 137 ] || complain "SIGTERM, then SIGINT twice: code $code"
said '^tuttirun: 2 s after SIGTERM 2 of 2 ranks have not ended, rank 0 \(pid [0-9]+\), rank 1 \(pid [0-9]+\); they are killed in 28 s, or by SIGINT twice \(Ctrl-C\)$'
with_ranks 'echo >&9; exec sleep 1000' 'kill -KILL $pid'
[ "$code" = 137 ] || complain "the launcher was not killed: code $code"
with_ranks 'sh -c "echo >&9; read x <&8" & wait' 'kill -KILL $pid'
[ "$code" = 137 ] || complain "the launcher was not killed: code $code"

# A reader that does not read stops the output, not the launcher.
rm -f ready
mkfifo ready full
exec 8<>full
"$BUILD_DIR/launch/tuttirun" --timeout 50 -n 2 sh -c 'exec 9>ready; echo >&9; exec yes' >full 2>err &
pid=$!
timeout 60 bash -c "exec <ready; read x; read x; kill -TERM $pid; cat" || complain "ranks outlived a full pipe"
wait $pid
[ $? = 143 ] || complain "SIGTERM with a full pipe"
exec 8>&-

# ---- several nodes
expect 2 $run -n 1 --nnodes 2 --node-rank 0 --master 127.0.0.1:29600 true
said 'TUTTI_SECRET'
export TUTTI_SECRET=ours
# shellcheck disable=SC2016
show='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE node $NODE_RANK $MASTER_ADDR:$MASTER_PORT $TUTTI_SECRET'
expect 0 $run -n 2 --nnodes 2 --node-rank 1 --master node0:29600 sh -c "$show"
sort out | cmp -s - <(printf '%s node 1 node0:29600 ours\n' '2/4 0/2' '3/4 1/2') || complain "node 1: $(cat out)"
# shellcheck disable=SC2016
expect 0 $run -n 1 --nnodes 2 --node-rank 1 --master-addr '[fd98:7::1]' sh -c 'echo $MASTER_ADDR $MASTER_PORT'
[ "$(cat out)" = 'fd98:7::1 29500' ] || complain "node 1 without a port: $(cat out)"
unset TUTTI_SECRET

# ---- meshes
# shellcheck disable=SC2016
expect 0 $run -n 4 --mesh dp=0,tp=2 sh -c 'echo $TUTTI_MESH'
said '^dp=2,tp=2$' out
said '^mesh dp=2,tp=2: 4 ranks$'
said '^  dp=1 +2 +3 +node 0$'
export TUTTI_SECRET=ours
expect 0 $run -n 2 --nnodes 2 --node-rank 0 --master 127.0.0.1:29601 --mesh dp=2,tp=2 true
said '^  dp=1 +2 +3 +node 1$'
said '^  dp crosses nodes$'
said '^  tp stays in a node$'
expect 0 $run -n 2 --nnodes 2 --node-rank 1 --master 127.0.0.1:29601 --mesh dp=2,tp=2 true
[ ! -s err ] || complain "node 1 prints the mesh: $(cat err)"
unset TUTTI_SECRET
expect 2 $run -n 6 --mesh dp=2,tp=4 true
said 'the mesh dp=2,tp=4 has 8 ranks, but there are 6'

# ---- bad lines
expect 0 $run --help
said 'usage: tuttirun' out
while read -r line; do
	# shellcheck disable=SC2086
	expect 2 $run $line
	said '^tuttirun --help explains the options\.$'
	[ ! -s out ] || complain "stdout of: tuttirun $line"
done <<-'END'

	true
	-n
	-n 0 true
	-n -1 true
	-n 2x true
	-n 99999999999 true
	-n 2
	-n 2 --
	--wrong -n 2 true
	-x -n 2 true
	-n 2 --timeout 0 true
	-n 2 --mesh dp true
	-n 2 --mesh
	-n 2 --timeout never true
	-n 2 --master-port 70000 true
	-n 2 --nnodes 2 true
	-n 2 --nnodes 2 --node-rank 2 --master h:1 true
	-n 2 --nnodes 2 --node-rank 0 true
	-n 2 --nnodes 2 --node-rank 0 --master h true
	-n 2 --node-rank 1 true
	-n 2 --master h:1 --master-port 1 true
END
exit $failures
