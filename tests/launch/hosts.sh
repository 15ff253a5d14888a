# A job on two hosts, 127.0.0.1 and 127.0.0.2, which $ssh reaches: what tuttirun --hosts promises. To be sourced, after
# launchers.sh.
hosts=127.0.0.1,127.0.0.2
tuttirun=$BUILD_DIR/launch/tuttirun

# run_two ARGUMENTS...: $ssh has several words.
run_two()
{
	timeout -k 5 90 "$tuttirun" -n 2 --hosts $hosts --ssh "$ssh" "$@"
}

# ---- they join; each has its numbers, arguments as they were given, the folder, and what starts with TUTTI_
expect 0 run_two "$program"
four
# shellcheck disable=SC2016
show='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR "$1" "$TUTTI_EXT_A" ${#TUTTI_SECRET} ${TUTTI_HOST_ID-none} $PWD'
TUTTI_EXT_A="'x  y" TUTTI_HOST_ID=here expect 0 run_two sh -c "$show" - "a 'b\"  c"
for r in 0 1 2 3; do
	printf '%d/4 %d/2 %d 127.0.0.1 %s %s 64 none %s\n' $r $((r % 2)) $((r / 2)) "a 'b\"  c" "'x  y" "$PWD"
done | cmp -s - <(sort out) || complain "environment: $(cat out)"

# ---- no command line has the secret
# shellcheck disable=SC2016
expect 0 run_two sh -c 'echo "$TUTTI_SECRET" >secret.$RANK; cat /proc/[0-9]*/cmdline 2>/dev/null | grep -acFf secret.$RANK
	grep -acF -e --agent /proc/$PPID/cmdline'
[ "$(sort out | uniq -c | tr -s ' \n' ' ')" = ' 4 0 4 1 ' ] || complain "the secret, or no agent, on command lines: $(cat out)"

# ---- output of all, whole; where it comes from
expect 0 run_two sh -c 'seq 20000; seq 20001 22000 >&2'
for _ in 1 2 3 4; do seq 20000; done | sort | cmp -s - <(sort out) || complain "stdout is not what was written"
for _ in 1 2 3 4; do seq 20001 22000; done | sort | cmp -s - <(sort err) || complain "stderr is not what was written"
# shellcheck disable=SC2016
expect 0 run_two -p --log_dir logs sh -c 'echo $RANK'
sort out | cmp -s - <(printf '[%d] %d\n' 0 0 1 1 2 2 3 3) || complain "prefixes: $(cat out)"
[ "$(cat logs/rank_3.log)" = 3 ] || complain "logs: $(head logs/*)"

# on_two SCRIPT ACTION: four ranks run SCRIPT, which says "ready" through fd 9; then ACTION with $pid. Returns when no rank
# is left; $code is tuttirun's. A read from fd 8 never ends.
on_two()
{
	rm -f ready never
	mkfifo ready never
	"$tuttirun" --timeout 50 -n 2 --hosts $hosts --ssh "$ssh" sh -c "exec 9>ready 8<>never; $1" >out 2>err &
	pid=$!
	timeout 60 bash -c "exec <ready; for i in 1 2 3 4; do read x; done; pid=$pid; $2; cat >/dev/null" || complain "ranks outlived: $2"
	wait $pid 2>/dev/null
	code=$?
}

# ---- a rank fails: those of the other host end, too
mkfifo go
# shellcheck disable=SC2016
on_two 'echo >&9; [ $RANK = 3 ] && read x <go; [ $RANK = 3 ] && exit 7; read x <&8' 'echo >go'
[ "$code" = 7 ] || complain "a rank that fails: code $code"
said '^tuttirun: rank 3 \(pid [0-9]+\) exited with code 7; the job was ended$'
said '^tuttirun: host 127.0.0.2 exited with code 7; the job was ended$'
expect 124 run_two --timeout 0.5 sleep 1000
said 'it ran longer than 0.5 s'

# ---- signals, and the death of tuttirun or of a connection
on_two 'trap "echo got; exit 0" USR1; echo >&9; while :; do read x <&8; done' 'kill -USR1 $pid'
[ "$code $(grep -c got out)" = "0 4" ] || complain "SIGUSR1: code $code, $(cat out err)"
on_two 'trap "echo saved; exit 0" TERM; echo >&9; while :; do read x <&8; done' 'kill -TERM $pid'
[ "$code $(grep -c saved out)" = "0 4" ] || complain "ranks that end well after SIGTERM: code $code"
on_two 'echo >&9; exec sleep 1000' 'kill -INT $pid'
[ "$code" = 130 ] || complain "SIGINT: code $code"
on_two 'echo >&9; exec sleep 1000' 'kill -KILL $pid'
[ "$code" = 137 ] || complain "tuttirun was not killed: code $code"
# shellcheck disable=SC2016
on_two 'trap "" TERM; echo >&9; while :; do read x <&8; done' \
	'for p in $(cat /proc/$pid/task/$pid/children); do [ $(cat /proc/$p/comm) = tuttirun ] || break; done; kill -KILL $p'
[ "$code" = 137 ] || complain "a connection was not killed: code $code"
said '^tuttirun: host 127.0.0.[12] was killed by signal 9'

# ---- a file of hosts; a host that cannot be reached
printf '# ours\n127.0.0.1 slots=2\n\n127.0.0.2\tslots=2 max_slots=4 # far\n' >hostfile
expect 0 timeout -k 5 90 "$tuttirun" --hostfile hostfile --ssh "$ssh" "$program"
four
printf '#!/bin/sh\ncase $1 in *2) echo "no route to $1" >&2; exit 255;; esac; exec %s "$@"\n' "$ssh" >half
chmod +x half
ssh=$scratch/half expect 255 run_two sleep 1000
said '^no route to 127.0.0.2$'
said '^tuttirun: host 127.0.0.2 exited with code 255; the job was ended$'
