#!/usr/bin/env bash
# slow: 2 s
# What would break: looking at ranks from outside. Dumps of running, hanging and stopped ranks in all ways they
# can be connected, what merge says of them, tutti-top, traces of failures, and a message with an exit code
# for every process that cannot be looked at. Every wait is for a condition and has a deadline.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
run="timeout -k 5 100 $BUILD_DIR/launch/tuttirun"
trace="timeout -k 5 60 $BUILD_DIR/tools/tutti-trace"
top="timeout -k 5 60 $BUILD_DIR/tools/tutti-top"
rank=$BUILD_DIR/tests/trace_main
unset TUTTI_TRACE_DIR
if $trace merge /dev/null 2>&1 | grep -q 'jansson was not installed'; then
	echo "jansson is not installed"
	exit 77
fi
mkfifo ready go done
files_of_tutti()
{
	find /dev/shm /tmp -maxdepth 1 -name '*tutti-trace*' 2>/dev/null | sort # others' come and go
}
files_of_tutti >before

said()
{
	grep -qE -- "$1" "${2:-out}" || complain "no '$1' in ${2:-out}: $(head -c 2000 "${2:-out}")"
}

is_json()
{
	command -v python3 >/dev/null || return 0
	python3 -m json.tool "$1" /dev/null 2>json_error || complain "$1 is no JSON: $(cat json_error)"
}

# Reads the numbers of $1 processes from the fifo: pid[rank].
take_pids()
{
	pid=()
	local r p
	exec 4<>ready
	for ((i = 0; i < $1; i++)); do
		read -r -t 60 -u 4 r p || complain "rank $i of $1 never said anything"
		pid[r]=$p
	done
	exec 4<&-
}

# Ends the waits for these fifos.
let_go()
{
	for fifo; do
		timeout 60 bash -c ": >$fifo" || complain "no rank waits for $fifo"
	done
}

# Dumps pid $1 into $2 until a line matches $3.
dump_until()
{
	local until=$((SECONDS + 60))
	until $trace dump "$1" >"$2" 2>err && grep -qE -- "$3" "$2"; do
		if [ $SECONDS -ge $until ]; then
			complain "no '$3' in the trace of process $1: $(head -c 3000 "$2") $(cat err)"
			return
		fi
	done
	is_json "$2"
}

# ---- a hanging rank, in every way that ranks are connected
hang()
{
	local way=$1
	shift
	"$@" >log 2>&1 &
	local job=$!
	take_pids 2
	# An earlier call that waited says so for ever: it must be this one.
	dump_until "${pid[0]}" "$way.0" \
		'"name":"all_reduce".*"state":"under way".*"sequence":5.*"algorithm":"[a-z_0-9]+".*"waits":"[^"]*rank 1'
	said '"name":"send".*"in":"a group"' "$way.0"
	said '"name":"recv".*"state":"done".*"bytes":4' "$way.0"
	if [ "${pid[0]}" != "${pid[1]}" ]; then
		kill -STOP "${pid[1]}"
		expect 0 $trace dump "${pid[1]}" -o "$way.1"
		is_json "$way.1"
		expect 0 $trace merge "$way.0" "$way.1" -o merged
		said 'all_reduce #5: rank 1 has not come; rank 0 waits for '
		is_json merged
		[ "$(grep -c '"ph":"M","name":"process_name"' merged)" = 2 ] || complain "$way: no two processes"
		kill -CONT "${pid[1]}"
	fi
	expect 0 $top --once -i 0.05 "${pid[0]}"
	said "^ *${pid[0]} +0 +2 .*all_reduce #5 +under way .* rank 1 " out
	let_go go
	take_pids 2
	dump_until "${pid[0]}" "$way.0" '"state":"done","sequence":5,'
	if [ "${pid[0]}" != "${pid[1]}" ]; then
		expect 0 $trace dump -o "$way.both" "${pid[1]}" "${pid[0]}"
		expect 0 $trace merge "$way.both" -o merged --all
		said 'all_reduce #5: rank 1 came last, [0-9.]+ us after rank 0, the first'
		said 'came_last_by_us' merged
	fi
	let_go go done
	wait $job || complain "$way: the job failed: $(cat log)"
}
words="reduce:5 messages say:ready wait:1:go reduce:1 say:ready wait:0:go wait:1:done"
# shellcheck disable=SC2086
{
	hang window $run -n 2 "$rank" $words
	hang shm env TUTTI_WINDOW=0 TUTTI_TRANSPORTS=shm $run -n 2 "$rank" $words
	hang tcp env TUTTI_WINDOW=0 TUTTI_TRANSPORTS=tcp $run -n 2 "$rank" $words
	hang threads "$rank" --threads 2 $words
	hang threads_tcp env TUTTI_WINDOW=0 TUTTI_TRANSPORTS=tcp "$rank" --threads 2 $words
}

# ---- a world of one; more operations than are remembered
"$rank" reduce:3000 dump:own say:ready wait:0:go >log 2>&1 &
take_pids 1
dump_until "${pid[0]}" one '"sequence":2999'
[ "$(grep -c '"ph":"X"' one)" = 1024 ] || complain "not 1,024 operations: $(grep -c '"ph":"X"' one)"
is_json own
[ "$(grep -c '"ph":"X"' own)" = 1024 ] || complain "tutti_trace_dump wrote $(grep -c '"ph":"X"' own) operations"
expect 0 $top --once -i 0.05
said "^ *${pid[0]} +0 +1 .*all_reduce #2999 +done"
let_go go
wait

# ---- a communicator that fails leaves its trace where it is wanted, and only there
mkdir traces
expect 0 $run -n 3 "$rank" reduce:2 fail:1
[ -z "$(ls traces)" ] || complain "a trace that nobody wanted"
TUTTI_TRACE_DIR=traces $run -n 3 "$rank" reduce:2 say:ready wait:1:go fail:1 >log 2>&1 &
job=$!
take_pids 3
for r in 0 2; do
	dump_until "${pid[r]}" one '"name":"barrier".*"waits":"[^"]*rank 1'
done
let_go go
wait $job || complain "the job whose rank aborts: $(cat log)"
[ "$(ls traces | tr '\n' ' ')" = "tutti-trace.0.json tutti-trace.1.json tutti-trace.2.json " ] ||
	complain "traces of a failure: $(ls traces)"
for file in traces/*; do
	is_json "$file"
done
said '"name":"barrier".*"state":"failed"' traces/tutti-trace.0.json
expect 0 $trace merge traces/* -o merged
said 'Communicator [0-9a-f]{16} of 3 ranks'
# Nowhere to write: the failure is what it was.
expect 0 env TUTTI_TRACE_DIR=/no/such/folder $run -n 2 "$rank" fail:1
expect 2 env TUTTI_TRACE_DIR= sh -c '"$@" || exit 2' - "$rank" reduce:1

# ---- killed ranks leave nothing behind
$run -n 2 "$rank" reduce:1 say:ready wait:0:go wait:1:go >log 2>&1 &
take_pids 2
kill -9 "${pid[@]}"
wait
files_of_tutti | cmp -s - before || complain "left behind: $(files_of_tutti | diff before -)"
code=$($trace dump "${pid[0]}" >/dev/null 2>err; echo $?)
[ "$code" = 3 ] || complain "a process that has ended: exit code $code, $(cat err)"

# ---- what cannot be done
expect 3 $trace dump 2147483647
said '^tutti-trace: There is no process 2147483647\.$' err
expect 3 $top --once 2147483647
said '^tutti-top: There is no process 2147483647\.$' err
expect 4 $trace dump $$
said "^tutti-trace: Process $$ does not use Tutti, or has no communicator now\.$" err
expect 4 $top --once $$
# Root may look at every process, unless it has no capabilities.
weak=
[ "$(id -u)" != 0 ] || weak="setpriv --bounding-set -all"
for kind in random short unsealed hidden version; do
	coproc "$BUILD_DIR/tests/trace_page_main" $kind
	page=$COPROC_PID
	read -r -t 60 -u "${COPROC[0]}" line || complain "$kind: the page never came"
	if [ $kind = hidden ]; then
		expect 5 $weak $trace dump $page
		said "^tutti-trace: Process $page may not be looked at \(Permission denied\)" err
	elif [ $kind = version ]; then
		expect 6 $trace dump $page
		said "^tutti-trace: Process $page uses another version of Tutti \(0\.9\.9, trace [0-9]+\." err
		expect 6 $top --once $page
	else
		expect 1 $trace dump $page
		said "^tutti-trace: Process $page has a trace that is damaged\.$" err
	fi
	eval "exec ${COPROC[1]}>&-"
	wait $page || complain "$kind: the page's process ended with $?"
done
expect 0 $trace --help
said '^usage: tutti-trace dump'
expect 0 $top --help
said '^usage: tutti-top'
for words in '' dance dump merge 'dump x' 'dump -1' 'dump 0' 'dump --all 1' 'dump -o' 'merge --colour x'; do
	expect 2 $trace $words
	said '^tutti-trace --help explains the options\.$' err
done
for words in '--often' '-i 0 1' '-i x' 'x'; do
	expect 2 $top $words
	said '^tutti-top --help explains the options\.$' err
done
expect 1 $trace merge /no/such/file
said '^tutti-trace: /no/such/file could not be read: No such file' err
echo '{"traceEvents":[]}' >other
expect 1 $trace merge other
said '^tutti-trace: other is no trace: it is no trace of tutti-trace' err
head -c 1000 own >half
expect 1 $trace merge half
said '^tutti-trace: half is no trace: ' err
expect 1 $trace merge own -o /no/such/folder/file
said '^tutti-trace: the trace could not be written: /no/such/folder/file' err
exit $failures
