# Two ranks of which rank 0 waits in the sixth all_reduce until rank 1 may go on, and tutti-top --web beside them. To be
# sourced behind scratch.sh.
trace="timeout -k 5 60 $BUILD_DIR/tools/tutti-trace"

# Sets $job, and $ranks, the two processes' numbers.
start_ranks()
{
	local r p until=$((SECONDS + 60))
	mkfifo ready go
	timeout -k 5 100 "$BUILD_DIR/launch/tuttirun" -n 2 "$BUILD_DIR/tests/trace_main" reduce:5 say:ready wait:1:go reduce:1 >log 2>&1 &
	job=$!
	exec 4<>ready
	ranks=()
	for _ in 0 1; do
		read -r -t 60 -u 4 r p || complain "a rank never said anything"
		ranks[r]=$p
	done
	exec 4<&-
	until $trace dump "${ranks[0]}" 2>/dev/null | grep -q '"state":"under way".*"sequence":5.*"waits":"[^"]*rank 1'; do
		[ $SECONDS -lt $until ] || { complain "rank 0 never waited"; return; }
	done
}

end_ranks()
{
	timeout 60 bash -c ': >go' || complain "rank 1 does not wait"
	wait $job || complain "the job failed: $(cat log)"
}

# start_web WORD...: sets $web, its process, and $address.
start_web()
{
	coproc timeout -k 5 100 "$BUILD_DIR/tools/tutti-top" --web -i 0.1 "$@" 2>web_err
	web=$COPROC_PID
	local line
	read -r -t 60 -u "${COPROC[0]}" line || complain "tutti-top --web says nothing: $(cat web_err)"
	address=$(grep -oE 'http://127\.0\.0\.1:[0-9]+/[0-9a-f]{64}/' <<<"$line") || complain "no address in: $line"
}
