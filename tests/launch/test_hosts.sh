#!/usr/bin/env bash
# slow: 20 s
# What would break: jobs on several machines, and what is left of them there when they fail. ssh is a fake: a session of its own,
# without the environment, behind two pipes. test_hosts_ssh has the real one.
set -u
. "$SOURCE_DIR/tests/launch/launchers.sh"
cat >fake_ssh <<'END'
#!/usr/bin/env bash
# Killed as ssh is: what runs there sees nothing but the end of its stdin.
shift
env -i PATH="$PATH" ASAN_OPTIONS="${ASAN_OPTIONS-}" TSAN_OPTIONS="${TSAN_OPTIONS-}" setsid sh -c "cd /; $*" < <(exec cat 2>/dev/null) > >(exec cat) 2> >(exec cat >&2)
END
chmod +x fake_ssh
ssh=$scratch/fake_ssh
. "$SOURCE_DIR/tests/launch/hosts.sh"

# ---- this machine needs no ssh
expect 0 timeout -k 5 90 "$tuttirun" -n 2 --hosts localhost,"$(hostname)" --master_addr 127.0.0.1 "$program"
four

# ---- a rank fails: all ranks of all hosts are started again, as at first, but with another secret
expect 0 run_two --max-restarts 2 "$program" once
[ -e once ] || complain "no rank has failed"
four
# Which one, is a matter of chance here: the others hear of its end, and end, before its parent may do.
said '^tuttirun: rank [0-3] \(pid [0-9]+\) exited with code [0-9]+; the job was ended$'
said '^tuttirun: host 127.0.0.[12] exited with code [0-9]+; the ranks of all hosts are started again \(restart 1 of 2\)$'
# shellcheck disable=SC2016
expect 7 run_two --max-restarts 2 --restart job --log-dir tries sh -c '[ $RANK = 2 ] || exec sleep 60
	echo ${TUTTI_RESTARTED:-no} ${TUTTI_MAX_RESTARTS:-none} $TUTTI_SECRET; exit 7'
[ "$(grep -c '^no none [0-9a-f]\{64\}$' out) $(sort -u out | wc -l)" = '3 3' ] || complain "ranks that were started again: $(cat out)"
sort -u out | cmp -s - <(sort tries/rank_2.log) || complain "the log of a rank that was started again: $(cat tries/rank_2.log)"
said '^tuttirun: host 127.0.0.2 exited with code 7; the ranks of all hosts are started again \(restart 2 of 2\)$'
said '^tuttirun: host 127.0.0.2 exited with code 7; the job was ended after 2 of 2 restarts$'
[ "$(grep -c 'started again' err)" = 2 ] || complain "restarts: $(cat err)"
# A job whose time is over is not; one that takes ranks in by tutti_comm_grow starts that rank alone.
expect 124 run_two --timeout 0.5 --max-restarts 2 sleep 1000
[ "$(grep -c 'started again' err)" = 0 ] || complain "its time is over, and yet it is started again: $(cat err)"
# shellcheck disable=SC2016
expect 7 run_two --max-restarts 1 --restart rank sh -c '[ $RANK = 2 ] || exec sleep 60; exit 7'
said 'rank 2 \(pid [0-9]+\) exited with code 7; it is started again \(restart 1 of 1\)$'

# ---- another job serves at the port that was chosen, before the first host is told of it: rank 0 serves at another
cat >late_ssh <<END
#!/usr/bin/env bash
if [ "\$1" = 127.0.0.1 ]; then
	head -c 20 >head
	head -c \$((16#\$(cut -c 12-19 head))) >letter
	tr '\\0' '\\n' <letter | grep -A 1 -x -e --port | tail -n 1 >port
	RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=\$(cat port) TUTTI_SECRET=theirs "$program" >/dev/null 2>&1 &
	echo \$! >other
	until (exec 3<>"/dev/tcp/127.0.0.1/\$(cat port)") 2>/dev/null; do sleep 0.01; done
	exec "$ssh" "\$@" < <(exec cat head letter - 2>/dev/null)
fi
exec "$ssh" "\$@"
END
chmod +x late_ssh
ssh=$scratch/late_ssh expect 0 run_two "$program"
four
kill -0 "$(cat other)" || complain "no job was at the port"
expect 1 run_two --port "$(cat port)" "$program"
said "^tuttirun: port $(cat port) cannot be used: Address already in use"
kill "$(cat other)"

# ---- input: rank 0 has what a file has, also when it is started again, and the file stays where it was
seq 300 >in
# shellcheck disable=SC2016
{ read -r first; expect 0 run_two -p --max-restarts 1 sh -c 'cat; [ $RANK != 0 ] || [ -e read ] || { : >read; exit 1; }'; cat >rest; } <in
[ "$first" = 1 ] && cmp -s rest <(seq 2 300) || complain "the file is not where it was: $first, $(head -2 rest)"
cmp -s out <(for _ in 1 2; do seq 2 300 | sed 's/^/[0] /'; done) || complain "input: $(head -5 out)"
head -c 600000 /dev/zero >large
expect 1 run_two true <large
said 'the file that is stdin has 600000 bytes, and --hosts passes at most 524288 on; rank 0 can open it itself'
mkfifo lines
exec 7<>lines
echo line >&7
expect 0 run_two cat <&7
[ ! -s out ] || complain "ranks read a pipe: $(cat out)"
said 'stdin is a pipe with input, of which rank 0 gets nothing'
exec 7>&-

# ---- tutti-trace finds all ranks of this machine, below two tuttirun
mkfifo up
"$tuttirun" --timeout 50 -n 2 --hosts localhost,localhost sh -c 'exec 9>up; echo >&9; exec sleep 1000' 2>err.run & pid=$!
timeout 60 sh -c 'read x; read x; read x; read x; "$0" calls "$1"; kill "$1"; cat >/dev/null' \
	"$BUILD_DIR/tools/tutti-trace" $pid <up >out 2>err
wait $pid
[ "$(grep -o '^rank [0-9]' out | sort | tr '\n' ' ')" = 'rank 0 rank 1 rank 2 rank 3 ' ] || complain "tutti-trace: $(cat out err err.run)"

# ---- a folder that is not there any more
mkdir gone
expect 1 sh -c 'cd gone && rmdir ../gone && exec "$0" -n 1 --hosts localhost true' "$tuttirun"
said ': the folder that tuttirun is in has been removed\.$'

# ---- bad lists
printf 'a slots=2\nb slots=3\n' >uneven
echo '# none' >none
while read -r line; do
	# shellcheck disable=SC2086
	expect 2 timeout 60 "$tuttirun" $line
	said '^tuttirun --help explains the options\.$'
done <<-'END'
	-n 2 --hosts a,,b true
	-n 2 --hosts a,-oProxyCommand=x true
	-n 2 --hosts a --hostfile none true
	-n 2 --hosts a,b --nnodes 2 true
	-n 2 --hosts a,b --mesh dp=3 true
	--hosts a,b true
	-n 2 --ssh x true
	--hostfile uneven true
	-n 3 --hostfile uneven true
	-n 1 --hostfile none true
	-n 1 --hostfile missing true
	-n 1 --hostfile . true
END
said 'the file of hosts \. cannot be read: Is a directory'
expect 2 "$tuttirun" -n 2 --hosts a:2,b:2 true
said "'a:2' is not the name of a host: -n says how many ranks run on each host\.$"
expect 2 "$tuttirun" --hostfile uneven true
said 'uneven:2: b has slots=3, but -n or another host 2: all have to have as many ranks'
expect 1 "$tuttirun" --agent <hostfile
said 'are of different versions'
exit $failures
