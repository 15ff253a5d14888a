# make_inputs makes, in this folder, what tests of tutti-report read: of each kind of file at least one, by real programs. To be
# sourced behind scratch.sh; ends the test with 77 where no trace can be read.
tuttirun="timeout -k 5 100 $BUILD_DIR/launch/tuttirun"
trace="timeout -k 5 60 $BUILD_DIR/tools/tutti-trace"
if $trace merge /dev/null 2>&1 | grep -q 'jansson was not installed'; then
	echo "jansson is not installed"
	exit 77
fi

# Two ranks of which rank 1 comes to the sixth all_reduce when rank 0 waits in it; both tell of it in own.json. Each writes the
# file, and no rank destroys its communicator, which a trace then lacks, before all have come to the eighth.
make_trace()
{
	local job pid until=$((SECONDS + 60))
	mkfifo ready go
	timeout -k 5 60 "$BUILD_DIR/tests/trace_main" --threads 2 reduce:5 messages say:ready wait:1:go reduce:2 dump:own.json \
		reduce:1 &
	job=$!
	exec 4<>ready
	read -r -t 60 -u 4 _ pid || complain "the traced ranks never said anything"
	read -r -t 60 -u 4 _ || complain "a traced rank never said anything"
	exec 4<&-
	until $trace dump "$pid" -o dumped.json 2>/dev/null && grep -q '"state":"under way".*"sequence":5' dumped.json; do
		[ $SECONDS -lt $until ] || { complain "rank 0 never waited"; return; }
	done
	timeout 60 bash -c ': >go' || complain "rank 1 does not wait"
	wait $job || complain "the traced ranks failed"
}

make_inputs()
{
	make_trace
	$trace merge own.json -o merged.json >merge.txt || complain "no merge"
	mkdir traces
	TUTTI_TRACE_DIR=traces $tuttirun -n 2 "$BUILD_DIR/tests/trace_main" reduce:2 fail:1 >log 2>&1 || complain "$(cat log)"
	$tuttirun -n 2 "$BUILD_DIR/tests/trace_main" reduce:2 dump:small.json >log 2>&1 || complain "$(cat log)"
	expect 0 "$BUILD_DIR/perf/all_reduce_perf" --ranks 2 -b 64 -e 16K -f 16 -n 2 -w 1 -J reduce2.json
	expect 0 "$BUILD_DIR/perf/all_reduce_perf" --ranks 2 -b 64 -e 16K -f 16 -n 2 -w 1 --percentiles -J reduce2p.json
	expect 0 "$BUILD_DIR/perf/barrier_perf" --ranks 2 -n 2 -w 1 -J barrier.json
	seq 3000 >text
	local run
	for run in one two; do
		expect 0 "$BUILD_DIR/examples/gpt/gpt" --steps 5 --layers 1 --channels 16 --sample 0 --log $run text
	done
}
