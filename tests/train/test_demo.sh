#!/usr/bin/env bash
# no_asan: one thread that computes for long in plain arrays
# What would break: a demo that builds for a minute before it reports that the text is missing, and empty
# plots. script/demo is the demo itself.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
failures=0

# A copy without the rest of the tree: a run that tries to build fails in another way.
mkdir script
cp "$SOURCE_DIR/script/demo" script/
refused()
{
	local status=0
	script/demo "${@:2}" >out.txt 2>&1 || status=$?
	if [ "$status" != 2 ] || ! grep -q -- "$1" out.txt; then
		echo "script/demo ${*:2}: status $status and '$(cat out.txt)'; expected 2 and '$1'"
		failures=1
	fi
}
echo "a few words" >short
refused 'there is no nowhere' nowhere
refused 'there is no nowhere' short nowhere
refused 'the text has 12 bytes' short
refused 'no file or folder that can be read' /dev/null
[ ! -e out ] && [ ! -e build ] || failures=1
script/demo --help | grep -q 'script/demo FILE-OR-FOLDER' || failures=1

python=python3
"$python" -c 'import matplotlib' 2>/dev/null || python=/usr/bin/python3
seq 0 9 | awk '{ print $1, 4 - $1 / 10 }' >losses
{
	echo "# all_reduce_perf"
	for size in 16 64 256; do
		echo "$size $((size / 4)) float sum -1 3.5 0.00 0.01 0 4.5 0.00 0.01 0"
	done
	echo "# Out of bounds values : 0 OK"
} >table
"$python" "$SOURCE_DIR/tools/plot" loss loss.svg "one rank=losses" "four ranks=losses"
"$python" "$SOURCE_DIR/tools/plot" all_reduce all_reduce.svg "four ranks=table"
for text in '<svg' 'one rank' 'four ranks' 'loss (nats a character)'; do
	grep -q "$text" loss.svg || { echo "loss.svg has no '$text'"; failures=1; }
done
for text in '<svg' 'four ranks, in place' '256 B'; do
	grep -q "$text" all_reduce.svg || { echo "all_reduce.svg has no '$text'"; failures=1; }
done
if "$python" "$SOURCE_DIR/tools/plot" loss none.svg "nothing=short" 2>error; then
	echo "a file without numbers was plotted"
	failures=1
fi
grep -q 'no numbers in short' error || failures=1
exit $failures
