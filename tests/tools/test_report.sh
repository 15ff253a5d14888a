#!/usr/bin/env bash
# slow: 7 s
# What would break: a page that lacks what its inputs hold, that needs a network, or of a file that nobody can read; and
# traces that viewers refuse. The inputs are of real programs.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
report="timeout -k 5 100 $BUILD_DIR/tools/tutti-report"
. "$SOURCE_DIR/tests/tools/report_inputs.sh"
make_inputs

# Viewers open each trace, of every origin.
expect 0 python3 -B "$SOURCE_DIR/tests/tools/chrome_trace.py" own.json merged.json traces/*.json dumped.json
expect 0 $report reduce2.json reduce2p.json barrier.json own.json one two -o page.html
[ ! -s out ] && [ ! -s err ] || complain "a page that was made says: $(cat out err)"
python3 -B "$SOURCE_DIR/tests/tools/report_cases.py" "$scratch" >cases 2>&1 || complain "$(cat cases)"

# ---- output
expect 0 $report barrier.json -o - --title 'A <title> & more'
grep -q '<h1>A &lt;title&gt; &amp; more</h1>' out || complain "no title: $(head -c 300 out)"
expect 0 $report barrier.json
[ -s tutti-report.html ] || complain "no page of the usual name: $(ls)"
expect 0 $report traces -o failed.html
grep -q '<td>barrier #[0-9]*</td><td>failed</td>' failed.html || complain "a failed call is not told"

# one CODE MESSAGE WORD...: an exit code, one line, and no new page.
one()
{
	local code=$1 message=$2
	shift 2
	rm -f none.html
	expect "$code" $report -o none.html "$@"
	[ "$(wc -l <err)" = 1 ] || complain "$*: not one line: $(head -c 1000 err)"
	grep -qE -- "^tutti-report: $message" err || complain "$*: no '$message' but: $(head -c 1000 err)"
	[ ! -e none.html ] || complain "$*: left a page"
}
: >empty
mkdir folder mixed
cp barrier.json one/metrics.csv mixed
cp reduce2.json mixed/notes.txt
echo '{"a": 1}' >mixed/config.json
expect 0 $report mixed -o mixed.html
[ "$(grep -o 'Made of [0-9]* files' mixed.html)" = 'Made of 2 files' ] || complain "a folder with other files: $(cat err)"
echo '{"a": 1}' >folder/config.json
printf 'PNG\377\376' >bytes
echo '{"traceEvents":[]}' >foreign.json
echo '{"traceEvents":[],"tutti":{"format":1,"processes":[]}}' >nobody.json
echo '[1]' >list.json
echo '{"a": 1}' >other.json
printf 'step,time,loss\n' >head.csv
printf 'step,time,loss\n1,2\n' >short.csv
printf 'step,time,loss\n1,2,much\n' >word.csv
head -c 300 reduce2.json >half.json
head -c 3000 own.json >half_trace.json
one 1 'absent could not be read: No such file or directory\.$' absent
one 1 'empty is empty\.$' empty
one 1 'folder has no metrics.csv, no metrics.jsonl, and no JSON file of results or traces\.$' folder
one 1 'bytes is no text: byte 3 is not UTF-8\.$' bytes
one 1 'foreign.json is a trace of another program: ' foreign.json
one 1 'nobody.json could be read, but no rank has an operation in it\.$' nobody.json
one 1 'list.json is neither JSON nor a log' list.json
one 1 'other.json is JSON, but not that of' other.json
one 1 'head.csv is damaged: it has a head and no row\.$' head.csv
one 1 'short.csv is damaged: line 2 has 2 values, and its head 3 names\.$' short.csv
one 1 "word.csv is damaged: line 2 has 'much', which is no number\.$" word.csv
one 1 'half.json is damaged: ' half.json
one 1 'half_trace.json is damaged: ' half_trace.json
# shellcheck disable=SC2016
one_of() { bash -c 'ulimit -v 400000; exec "$@"' - timeout -k 5 100 "$BUILD_DIR/tools/tutti-report" "$@"; }
report=one_of one 1 'the memory of this machine has no room for the files\.$' /dev/zero
one 2 'it needs files: .* --help says more\.$'
one 2 '.*--colour.* --help says more\.$' --colour barrier.json
one 2 '.* --help says more\.$' barrier.json --title
expect 1 $report barrier.json -o no/such/page.html
grep -q '^tutti-report: no/such/page.html could not be written: ' err || complain "a folder that is not there: $(cat err)"
$report barrier.json -o - >/dev/full 2>err
[ $? = 1 ] && grep -q 'stdout could not be written: No space left' err || complain "a full stdout: $(cat err)"
# Some editors begin a text with the mark of UTF-8.
{ printf '\357\273\277'; cat one/metrics.csv; } >marked.csv
expect 0 $report marked.csv -o marked.html
# Ctrl-C ends it as any program, without a word.
mkfifo endless
python3 - "$BUILD_DIR/tools/tutti-report" >err 2>&1 <<-'END' || complain "interrupted: $(cat err)"
	import signal, subprocess, sys
	child = subprocess.Popen([sys.argv[1], "endless", "-o", "none.html"], stderr=subprocess.PIPE, text=True,
	                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
	with open("endless", "w"):
	    # Python drops a KeyboardInterrupt that comes in a destructor or a callback: as a user would, again.
	    for _ in range(60):
	        child.send_signal(signal.SIGINT)
	        try:
	            said = child.communicate(timeout=1)[1]
	            break
	        except subprocess.TimeoutExpired:
	            said = "still there"
	assert (child.returncode, said) == (-signal.SIGINT, ""), (child.returncode, said)
END
# A page that is there stays as it was, and one that cannot be made leaves nothing beside it.
cp tutti-report.html before
expect 1 $report half.json
cmp -s before tutti-report.html || complain "a page was lost"
find . -name '.*.tmp' | grep . && complain "left behind"
exit $failures
