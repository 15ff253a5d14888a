#!/usr/bin/env bash
# slow: 22 s
# What would break: failed ranks that are started again, how often, what is said of it, and a job that goes on
# through kills.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
run="timeout -k 5 90 $BUILD_DIR/launch/tuttirun"
unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_RESTARTED

# said COUNT PATTERN: so many lines of stderr.
said()
{
	local got
	got=$(grep -cE "$2" err)
	[ "$got" = "$1" ] || complain "$got times, not $1: '$2' in: $(head -5 err)"
}

# wait_for FILE: a rank waits until another has made it.
cat >wait_for <<'END'
for _ in $(seq 2000); do [ -e "$1" ] && exit; sleep 0.01; done
exit 99
END

# ---- one fails once: it comes back with its number, and the job ends well
# shellcheck disable=SC2016
expect 0 $run -n 3 --max-restarts 2 sh -c 'echo $RANK ${TUTTI_RESTARTED:-no} $WORLD_SIZE
	if [ $RANK = 1 ] && [ -z "$TUTTI_RESTARTED" ]; then kill -9 $$; fi
	[ $RANK = 1 ] && : >back; sh wait_for back'
sort out | cmp -s - <(printf '0 no 3\n1 1 3\n1 no 3\n2 no 3\n') || complain "who ran: $(cat out)"
said 1 'rank 1 \(pid [0-9]+\) was killed by signal 9 \(Killed\); it is started again \(restart 1 of 2\)$'

# ---- it fails again and again: its code, after all restarts; so does another, and both are counted together
rm -f back
# shellcheck disable=SC2016
expect 7 $run -n 2 --max-restarts 2 sh -c '[ $RANK = 0 ] && exec sleep 60; exit 7'
said 2 'rank 1 \(pid [0-9]+\) exited with code 7; it is started again \(restart [12] of 2\)$'
said 1 'exited with code 7; the job was ended after 2 of 2 restarts$'
# shellcheck disable=SC2016
expect 7 $run -n 2 --max-restarts 3 --restart rank sh -c 'exit 7'
said 3 'started again'

# ---- who fails when another has ended well ends the job; without the option nobody comes back
# shellcheck disable=SC2016
expect 5 $run -n 2 --max-restarts 5 sh -c '[ $RANK = 0 ] && { echo $$ >first; exit 0; }
	sh wait_for first; while [ -d /proc/$(cat first) ] && ! grep -q "^State:.Z" /proc/$(cat first)/status; do sleep 0.01; done; exit 5'
said 1 'code 5; the job was ended after 0 of 5 restarts: another rank has ended well$'
# shellcheck disable=SC2016
expect 137 $run -n 2 sh -c '[ $RANK = 0 ] && exec sleep 60; kill -9 $$'
said 0 'started again'
said 1 'killed by signal 9 \(Killed\); the job was ended$'

# ---- what a failed rank has left behind is ended
cat >wait_end <<'END'
for _ in $(seq 1000); do
	grep -q '^State:.[^ZX]' "/proc/$(cat child)/status" 2>/dev/null || exit 0
	sleep 0.01
done
exit 99
END
# shellcheck disable=SC2016
expect 0 $run -n 1 --max-restarts 1 --restart rank sh -c '[ -n "$TUTTI_RESTARTED" ] && exec sh wait_end
	sleep 60 >/dev/null 2>&1 & echo $! >child; kill -9 $$'

# ---- rank 0 has read the input; the one in its place reads nothing
# shellcheck disable=SC2016
expect 0 $run -n 1 --max-restarts 1 --restart rank sh -c '[ -n "$TUTTI_RESTARTED" ] && exec cat; read x; exit 1' < <(seq 3)
[ ! -s out ] || complain "a rank that was started again reads: $(cat out)"

# ---- ranks that shrink and grow through kills: the job ends well, and every kill was a restart
for n in 2 4; do
	expect 0 env SEED=$n TUTTI_TIMEOUT_MS=30000 $run -n $n --max-restarts 1000 --restart rank \
		"$BUILD_DIR/tests/grow_main" kills 4
	grep -q 'started again (restart 1 of 1000)' err || complain "nobody was killed: $(cat err)"
done

# ---- --restart job: all ranks, as at first, also those that had ended well
# shellcheck disable=SC2016
expect 7 $run -n 4 --max-restarts 2 --restart job sh -c 'echo $RANK ${TUTTI_RESTARTED:-no}; : >"begun.$RANK"
	[ $RANK = 3 ] && exit 0; [ $RANK = 2 ] || exec sleep 60; for r in 0 1 3; do sh wait_for begun.$r; done; exit 7'
[ "$(sort out | uniq -c | tr -s ' \n' ' ')" = ' 3 0 no 3 1 no 3 2 no 3 3 no ' ] || complain "who ran: $(sort out | uniq -c)"
said 1 'rank 2 \(pid [0-9]+\) exited with code 7; all 4 ranks are started again \(restart 1 of 2\)$'
said 1 'rank 2 \(pid [0-9]+\) exited with code 7; all 4 ranks are started again \(restart 2 of 2\)$'
said 1 'exited with code 7; the job was ended after 2 of 2 restarts$'
# shellcheck disable=SC2016
expect 7 env TUTTI_SECRET=s $run -n 2 --nnodes 2 --node-rank 1 --master 127.0.0.1:29500 --max-restarts 1 --restart job sh -c 'exit 7'
said 1 'code 7; all 2 ranks of this machine are started again \(restart 1 of 1\)$'
# What they have written is passed on, and what they have started ends with them.
rm -f child
# shellcheck disable=SC2016
expect 0 $run -n 2 --max-restarts 1 --restart job sh -c '[ -e child ] && exec sh wait_end
	if [ $RANK = 0 ]; then exec sleep 60; fi
	sleep 60 >/dev/null 2>&1 & seq 20000; echo $! >child.new; mv child.new child; exit 1'
[ "$(grep -c . out)" = 20000 ] || complain "lines were lost: $(wc -l <out)"
# shellcheck disable=SC2016
$run -n 1 --max-restarts 1000000 --restart job sh -c 'echo $PPID; exit 3' >lines 2>err & launcher=$!
for _ in $(seq 3000); do [ -e lines ] && [ "$(wc -l <lines)" -gt 3 ] && break; sleep 0.01; done
kill -TERM "$(head -1 lines)"
wait $launcher
case $? in 3 | 143) ;; *) complain "SIGTERM while ranks are started again: $(tail -2 err)" ;; esac

# ---- without --restart: a program that ends on an error is started again as a whole, at the cost of one restart
cat >torchrun_way <<'END2'
: >"here.$RANK"
[ -e second ] && exit 0
if [ "$RANK" = 2 ]; then
	[ -n "${TUTTI_RESTARTED-}" ] && { : >again; exec sleep 60; }
	for r in 0 1 3; do sh wait_for here.$r; done
	exit 1
fi
[ "$RANK" = 0 ] || exec sleep 60
sh wait_for again
: >second
exit 1
END2
expect 0 $run -n 4 --max-restarts 1 sh torchrun_way
said 1 'rank 2 \(pid [0-9]+\) exited with code 1; it is started again \(restart 1 of 1\)$'
said 1 'rank 0 .* code 1; no rank has called tutti_comm_grow before: all 4 ranks are started again \(restart 1 of 1\)$'
# Several that are killed at once are one restart, also where none was left.
cat >killed_at_once <<'END2'
[ -n "${TUTTI_RESTARTED-}" ] && exec sleep 60
[ -e "again.$RANK" ] && exit 0
: >"again.$RANK"
[ "$RANK" -lt "$1" ] || exec sleep 60
for r in 0 1 2 3; do sh wait_for again.$r; done
kill -9 $$
END2
expect 0 $run -n 4 --max-restarts 1 sh killed_at_once 2
said 1 'it is started again \(restart 1 of 1\)$'
said 1 'Killed\); no rank has called tutti_comm_grow before: all 4 ranks are started again \(restart 1 of 1\)$'
rm -f again.*
expect 0 $run -n 4 --max-restarts 1 sh killed_at_once 4
said 1 'all 4 ranks are started again \(restart 1 of 1\)$'
rm -f again.*
expect 0 $run -n 4 --max-restarts 4 --restart rank sh killed_at_once 4
said 1 'Killed\); all 4 ranks are started again \(restart [1-4] of 4\)$'
# A process may end after the others have begun to grow: the next one to end is not taken for one that gives up.
expect 0 env TUTTI_TIMEOUT_MS=30000 $run -n 3 --max-restarts 9 "$BUILD_DIR/tests/grow_main" lingers
said 2 'exited with code 1; it is started again \(restart [12] of 9\)$'
said 0 'all 3 ranks'
# With one rank there is none that could call it.
# shellcheck disable=SC2016
expect 0 $run -n 1 --max-restarts 1 sh -c '[ -z "$TUTTI_RESTARTED" ] || exit 5; [ -e once ] || { : >once; exit 1; }'
said 1 'it is started again \(restart 1 of 1\)$'

# ---- a rank that was started again and finds no rank that calls tutti_comm_grow
cat >no_grow <<'END2'
if [ "$RANK" = 0 ]; then
	[ -e third ] && exit 0
	: >third
	exec sleep 200
fi
[ -e failed ] || { : >failed; kill -9 $$; }
[ -n "${TUTTI_RESTARTED-}" ] && exec "$@"
exit 0
END2
expect 0 $run -n 2 --max-restarts 1 sh no_grow "$BUILD_DIR/perf/all_reduce_perf" -b 4 -e 4
said 1 'tutti: rank 1: still waits for a running job that calls tutti_comm_grow at 127.0.0.1:[0-9]+: '
said 1 'no rank has called tutti_comm_grow for 5 s: all 2 ranks are started again \(restart 1 of 1\)$'
# With --restart rank, and on several machines, what it may need is said.
rm -f third failed
expect 3 env TUTTI_TIMEOUT_MS=6000 $run -n 2 --max-restarts 1 --restart rank sh no_grow "$BUILD_DIR/perf/all_reduce_perf" -b 4 -e 4
said 1 'no rank has called tutti_comm_grow for 5 s: a program that ends on an error needs --restart job, on each machine$'

# The others may die after they have called tutti_comm_grow: then none is left that could take new ranks in.
cat >none_left <<'END2'
if [ -n "${TUTTI_RESTARTED-}" ]; then
	: >"back.$RANK"
	sh wait_for grown
	exec "$@"
fi
[ -e grown ] && exit 0
[ "$RANK" = 0 ] || kill -9 $$
sh wait_for back.1
env RANK=0 WORLD_SIZE=1 LOCAL_WORLD_SIZE=1 "$BUILD_DIR/tests/grow_main" absent
: >grown
kill -9 $$
END2
rm -f grown back.*
expect 0 env TUTTI_TIMEOUT_MS=30000 $run -n 2 --max-restarts 3 --restart rank sh none_left "$BUILD_DIR/perf/all_reduce_perf" -b 4 -e 4
said 1 'no rank has called tutti_comm_grow for 5 s: all 2 ranks are started again \(restart 2 of 3\)$'

# ---- bad lines
expect 2 $run -n 2 --restart all true
expect 2 $run -n 2 --max-restarts -1 true
expect 2 $run -n 2 --max-restarts some true
exit $failures
