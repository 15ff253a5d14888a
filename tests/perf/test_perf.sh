#!/usr/bin/env bash
# What would break: the benchmark programs as they are started, read and believed.
set -u
bin=$BUILD_DIR/perf
run="timeout -k 5 100"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
unset WORLD_SIZE RANK
failures=0

complain()
{
	echo "FAILED: $*"
	failures=1
}

# expect CODE COMMAND...: runs it with its output in ./out and ./err, the table's rows in ./rows.
expect()
{
	local code=$1 got
	shift
	"$@" >out 2>err
	got=$?
	[ "$got" = "$code" ] || complain "exit code $got instead of $code from: $* ($(head -3 err))"
	grep -v '^#' out >rows
}

# all_right N: N rows of 13 columns, nothing wrong in any.
all_right()
{
	[ "$(wc -l <rows)" = "$1" ] || complain "$(wc -l <rows) rows instead of $1"
	awk 'NF != 13 || $9 != "0" || $13 != "0" { bad = 1 } END { exit bad }' rows ||
		complain "a row is not right: $(cat rows)"
}

# ---- started in every way
for collective in all_reduce all_gather reduce_scatter broadcast; do
	expect 0 $run "$bin/${collective}_perf" -t 2 -b 0 -e 8K -f 8 -n 3
	all_right 5
	expect 0 $run "$bin/${collective}_perf" --ranks 3 -b 0 -e 48K -f 8 -n 3
	all_right 6
	expect 0 $run "$BUILD_DIR/launch/tuttirun" -n 2 "$bin/${collective}_perf" -b 1M -e 1M -n 2
	all_right 1
	[ "$(cut -c-12 rows)" = "     1048576" ] || complain "size of $collective: $(cat rows)"
done
expect 0 $run "$bin/all_reduce_perf" -b 16 -e 64 -f 2
all_right 3
grep -q 'One rank talks to nobody' out || complain "a run of one rank says nothing about it"
expect 0 $run "$bin/all_reduce_perf" -t 1 -g 2 -b 64 -e 64
all_right 1
grep -q ' 2 ranks,' out || complain "-g 2 is not two ranks"

# ---- every type and operation, every root
expect 0 $run "$bin/all_reduce_perf" -t 3 -d all -o all -b 1K -e 1K -n 2
all_right 94                       # 6 float types x 5 operations + 8 integer types x 8
expect 0 $run "$bin/reduce_scatter_perf" -t 2 -d all -o all -b 1K -e 1K -n 2
all_right 94
expect 0 $run "$bin/all_gather_perf" -t 2 -d all -b 1K -e 1K -n 2
all_right 14
expect 0 $run "$bin/broadcast_perf" -t 3 -r all -b 1K -e 1K -n 2
all_right 3
[ "$(awk '{ print $5 }' rows | xargs)" = "0 1 2" ] || complain "-r all: $(cat rows)"

# ---- ways to call
for options in "-m 3" "-z 0" "-u 1" "-a 0" "-a 2" "-a 3" "-w 0" "--zero-copy"; do
	# shellcheck disable=SC2086
	expect 0 $run "$bin/all_reduce_perf" --ranks 2 -b 4 -e 64K -f 128 -n 3 $options
	all_right 3
done
for options in "-c 0" "-c 0 --dirty 0"; do
	# shellcheck disable=SC2086
	expect 0 $run "$bin/all_reduce_perf" -t 2 -b 4 -e 4 -n 3 $options
	[ "$(awk '{ print $9, $13 }' rows)" = "N/A N/A" ] || complain "unchecked: $(cat rows)"
done

# ---- what goes wrong
expect 1 $run "$BUILD_DIR/tests/wrong_perf" -t 2 -b 512 -e 2K -f 2 -n 4 -w 0
[ "$(awk '{ print $9, $13 }' rows | xargs)" = "0 0 4 4 0 0" ] || complain "wrong elements: $(cat rows)"
grep -q 'Out of bounds values : 2 FAILED' out || complain "wrong values are not summed up: $(cat out)"
expect 1 $run "$BUILD_DIR/tests/wrong_perf" --ranks 2 -b 1K -e 1K -n 1
expect 2 $run "$bin/broadcast_perf" -t 2 -r 2 -b 4 -e 4
grep -q 'there are 2 ranks' err || complain "-r 2 of 2 ranks: $(cat err)"
for options in "-x" "-d int7" "-o most" "-b 2 -e 1" "stray" "--ranks 2 -t 2"; do
	# shellcheck disable=SC2086
	expect 2 $run "$bin/all_reduce_perf" $options
	grep -q '^usage: all_reduce_perf' err || complain "no usage line after $options"
done
expect 2 $run "$BUILD_DIR/launch/tuttirun" -n 2 "$bin/all_reduce_perf" --ranks 2
grep -q '^usage' err || complain "no usage line from two ranks: $(cat err)"
exit $failures
