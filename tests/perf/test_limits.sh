#!/usr/bin/env bash
# slow: 10 s
# no_asan: it times or compares programs that other tests run here, too
# What would break: limits that wait for the dead or for whom they share a core with, and figures that are no limits.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
unset TUTTI_SECRET TUTTI_SECRET_FILE
program=$BUILD_DIR/perf/limits
limits="timeout -k 5 800 $program"

says()
{
	grep -qE -- "$1" "$2" || complain "'$1' is not in $2: $(cat "$2")"
}

# json FILE EXPRESSION: what is true of the document d.
json()
{
	python3 - "$1" "$2" <<-'END' || complain "$2: $(cat "$1")"
		import json, sys
		d = json.load(open(sys.argv[1]))
		sys.exit(not eval(sys.argv[2]))
	END
}

# ---- the best of all tries, and how they spread
expect 0 $limits -J limits.json flag loopback
says '^loopback TCP.* us one way at the least \(median' out
json limits.json "d['bandwidth'] == [] and all(d[name] > 0 for name in ('loopback_latency_us', 'loopback_GBps'))"
json limits.json "d['cores'] == 1 or d['flag_ns'] > 0"
for name in flag_ns loopback_latency_us; do
	json limits.json "'$name' not in d or d['$name'] <= d['quartiles']['$name'][0] and d['quartiles']['$name'] == sorted(d['quartiles']['$name'])"
done
json limits.json "d['loopback_GBps'] >= d['quartiles']['loopback_GBps'][2]"

# ---- one core: what needs two is left out, and nobody waits for a core that the other one has
cpu=$(python3 -c 'import os; print(min(os.sched_getaffinity(0)))')
expect 0 taskset -c "$cpu" $limits -J one.json bandwidth flag loopback call join
says '^flag: not measured, since there is one core only\.$' out
says '^copy: not measured, since there is one core only\.$' out
says '^loopback TCP, both ends on one core: ' out
says '2 ranks on one core: ' out
json one.json "d['cores'] == 1 and sorted(d['skipped']) == ['copy', 'flag'] and 'flag_ns' not in d"
json one.json "all(d[name] > 0 for name in ('loopback_latency_us', 'loopback_one_way_GBps', 'loopback_GBps', 'call_ns', 'join_8_best_ms'))"
json one.json "{(b['pattern'], b['cores']) for b in d['bandwidth']} == {('reduce', 1), ('2 in 2 out', 1)} and len(d['bandwidth']) == 8"
json one.json "all(b['GBps'] >= b['quartiles'][2] > 0 for b in d['bandwidth'])"

# ---- lines that cannot be understood, and what cannot be written
for words in nonsense "--timeout 0 flag" "--timeout x flag" "--timeout 2s flag" "--unknown"; do
	# shellcheck disable=SC2086
	expect 2 $limits $words
	says '^limits --help explains the options' err
done
expect 2 $limits -J nowhere/limits.json bandwidth flag loopback call join idle memory
[ ! -s out ] && [ "$(wc -l <err)" = 1 ] || complain "limits measures before it knows where to write: $(cat out err)"
expect 2 $limits -J nowhere/limits.json idle-not
$limits join >/dev/full 2>err
[ $? = 3 ] || complain "a full standard output: $(cat err)"
says 'limits: stdout cannot be written: No space left' err

# of_limits PID: sets $children to its processes as soon as there are some; not 0 when it has ended before.
of_limits()
{
	children=
	until [ -n "$children" ]; do
		read -r children 2>/dev/null <"/proc/$1/task/$1/children" || kill -0 "$1" 2>/dev/null || return 1
	done
}

# ended PID: waits until it has; then its exit code is in $got.
ended()
{
	timeout 600 tail --pid "$1" -f /dev/null || {
		complain "limits does not end"
		kill -KILL "$1"
	}
	wait "$1" 2>/dev/null
	got=$?
}

# ---- who is killed is missed at once, by those who wait for him too
parts="bandwidth loopback call join idle memory"
[ "$(nproc)" = 1 ] || parts+=" flag"
for part in $parts; do
	for ((try = 0; try < 20; try++)); do            # it may be done before
		"$program" -J killed.json "$part" >out 2>err &
		pid=$!
		of_limits $pid && kill -KILL "${children%% *}" 2>/dev/null
		ended $pid
		[ $got = 0 ] || break
		rm killed.json
	done
	[ $got = 3 ] || complain "exit code $got after a rank of $part was killed"
	says '^limits: rank [0-9] \(pid [0-9]+\) was killed by signal 9 \(Killed\)(; the job was ended)?\.$' err
	says "^limits: $part was not measured\.$" err
	[ ! -e killed.json ] || complain "figures of $part, of which a rank was killed: $(cat killed.json)"
done

# ---- who is stopped is given up after a while
for ranks in 1 2; do
	part=idle
	[ $ranks = 2 ] || part=bandwidth                # it begins with one
	"$program" --timeout 2 $part >out 2>err &
	pid=$!
	of_limits $pid && kill -STOP "${children%% *}"
	ended $pid
	[ $got = 3 ] || complain "exit code $got after a rank of $part was stopped: $(cat err)"
	says "^limits: not all of $ranks ranks were done after 2 s, so they were ended; process [0-9]+ was stopped\.$" err
	for child in $children; do
		kill -0 "$child" 2>/dev/null && complain "a rank lives on"
	done
done

# ---- its processes spin: they end with the one that started them, however that ended
"$program" bandwidth >/dev/null 2>&1 &
pid=$!
of_limits $pid
child=${children%% *}
until awk '{ exit !($14 > 0) }' "/proc/$child/stat"; do      # until it has begun
	kill -0 $pid 2>/dev/null || break
	read -rt 0.01 <> <(:)
done
kill -STOP "$child"                                      # it does not end by itself
kill -KILL $pid
wait $pid 2>/dev/null
if ! timeout 100 tail --pid "$child" -f /dev/null; then
	complain "a process of limits lives on"
	kill -KILL "$child"
fi
exit $failures
