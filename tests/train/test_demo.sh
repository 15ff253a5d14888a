#!/usr/bin/env bash
# What would break: a demo that builds for a minute before it reports that the text is missing. script/demo is the
# demo itself.
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

exit $failures
