#!/usr/bin/env bash
# slow: 15 s
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

# ---- tutti-trace finds all ranks of this machine, below two tuttirun
mkfifo up
"$tuttirun" --timeout 50 -n 2 --hosts localhost,localhost sh -c 'exec 9>up; echo >&9; exec sleep 1000' 2>err.run & pid=$!
timeout 60 sh -c 'read x; read x; read x; read x; "$0" calls "$1"; kill "$1"; cat >/dev/null' \
	"$BUILD_DIR/tools/tutti-trace" $pid <up >out 2>err
wait $pid
[ "$(grep -o '^rank [0-9]' out | sort | tr '\n' ' ')" = 'rank 0 rank 1 rank 2 rank 3 ' ] || complain "tutti-trace: $(cat out err err.run)"

# ---- bad lists
printf 'a slots=2\nb slots=3\n' >uneven
echo '# none' >none
while read -r line; do
	# shellcheck disable=SC2086
	expect 2 timeout 60 "$tuttirun" $line
	said 'usage: tuttirun'
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
expect 2 "$tuttirun" --hostfile uneven true
said 'uneven:2: b has slots=3, but -n or another host 2: all have to have as many ranks'
expect 1 "$tuttirun" --agent <hostfile
said 'are of different versions'
exit $failures
