#!/usr/bin/env bash
# What would break: a job that hangs, and is ended for its time, without a word on where it hangs.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
run="timeout -k 5 100 $BUILD_DIR/launch/tuttirun"
unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_TRACE_DIR
mkfifo go

# ---- rank 1 does not come to the others' sixth all_reduce
# Within a time that ranks need to join on a loaded machine.
for s in 2 10 40; do
	expect 124 $run -n 3 --timeout $s --trace-dir . "$BUILD_DIR/tests/trace_main" reduce:5 wait:1:go reduce:1
	[ "$(grep -cE 'is in all_reduce #5 .* waits for|its last one was all_reduce #4' err)" = 3 ] && break
done
said "^tuttirun: the job was ended: it ran longer than $s s \(--timeout\)\$"
said '^tuttirun: rank 0 \(pid [0-9]+\) is in all_reduce #5 of communicator [0-9a-f]{8} for [0-9.]+ s and waits for rank 1$'
said '^tuttirun: rank 1 \(pid [0-9]+\) is not in a call of Tutti; its last one was all_reduce #4, (at most )?[0-9.]+ s ago$'
said '^tuttirun: rank 2 \(pid [0-9]+\) is in all_reduce #5 '
said '^tuttirun: the traces of the ranks are in \./tutti-trace\.node0\.json$'
[ "$(grep -o '"process_name"' tutti-trace.node0.json | wc -l)" = 3 ] || complain "not the traces of three ranks"

# ---- no program of Tutti, or no folder
expect 124 $run -n 2 --timeout 1 sleep 60
said '^tuttirun: rank 1 \(pid [0-9]+\) has no communicator: it waits in tutti_init, or is not in a call of Tutti$'
[ "$(wc -l <err)" = 3 ] || complain "more than a line a rank: $(cat err)"
expect 124 $run -n 3 --timeout $s --trace-dir nowhere "$BUILD_DIR/tests/trace_main" reduce:5 wait:1:go reduce:1
said '^tuttirun: tutti-trace: .*nowhere'

# ---- where tutti-trace is not installed
mkdir bin
cp "$BUILD_DIR/launch/tuttirun" bin
expect 124 env LD_LIBRARY_PATH="$BUILD_DIR" timeout -k 5 60 bin/tuttirun -n 1 --timeout 1 sleep 60
said '^tuttirun: there is no tutti-trace beside it'
exit $failures
