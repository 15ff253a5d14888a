#!/usr/bin/env bash
# slow: 4 s
# no_asan: it times or compares programs that other tests run here, too
# What would break: the benchmark programs as they are started, read and believed.
set -u
. "$SOURCE_DIR/tests/perf/common.sh"

# ---- started in every way
for collective in $collectives; do
	na=$(in_place_of $collective)
	expect_rows 0 $run "$bin/${collective}_perf" -t 2 -b 0 -e 8K -f 8 -n 3
	all_right "$(rows_of $collective 5)" "$na"
	expect_rows 0 $run "$bin/${collective}_perf" --ranks 3 -b 0 -e 48K -f 8 -n 3
	all_right "$(rows_of $collective 6)" "$na"
	expect_rows 0 $run "$BUILD_DIR/launch/tuttirun" -n 2 "$bin/${collective}_perf" -b 1M -e 1M -n 2
	all_right 1 "$na"
	[ $collective = barrier ] || [ "$(cut -c-12 rows)" = "     1048576" ] ||
		complain "size of $collective: $(cat rows)"
done
expect_rows 0 $run "$bin/all_reduce_perf" -b 16 -e 64 -f 2
all_right 3
grep -q 'One rank talks to nobody' out || complain "a run of one rank says nothing about it"
expect_rows 0 $run "$bin/all_reduce_perf" -t 2 -b 64 -e 64
all_right 1
grep -q '^# all_reduce_perf (Tutti [0-9.]* (.*)), 2 ranks,' out || complain "the header: $(head -1 out)"

# ---- every type and operation, every root
# core/memory/ops.h has the operations, with false those of all types; 6 of the 14 types are floats.
of_all=$(grep -c '^	X(.*, false)' "$SOURCE_DIR/core/memory/ops.h")
of_integers=$(grep -c '^	X(.*, true)' "$SOURCE_DIR/core/memory/ops.h")
of_types=$((14 * of_all + 8 * of_integers))
for word in $(sed -n 's/^	X([A-Z]*, "\([a-z]*\)".*/\1/p' "$SOURCE_DIR/core/memory/ops.h"); do
	"$bin/all_reduce_perf" --help | grep -q -- "--op .*\b$word\b" || complain "--help does not name $word"
done
[ "$of_types" -ge 94 ] || complain "$of_all and $of_integers operations are found in core/memory/ops.h"
expect_rows 0 $run "$bin/all_reduce_perf" -t 3 -d all -o all -b 1K -e 1K -n 2
all_right $of_types
expect_rows 0 $run "$bin/reduce_scatter_perf" -t 2 -d all -o all -b 1K -e 1K -n 2
all_right $of_types
expect_rows 0 $run "$bin/all_gather_perf" -t 2 -d all -b 1K -e 1K -n 2
all_right 14
for ranks in 4 8; do
	expect_rows 0 $run "$bin/all_reduce_perf" -t $ranks -d bfloat16 -o all -b 256 -e 64K -f 256 -n 2
	all_right $((2 * of_all))       # two sizes
done
for collective in broadcast reduce gather scatter; do
	expect_rows 0 $run "$bin/${collective}_perf" -t 3 -r all -b 1K -e 1K -n 2
	all_right 3
	[ "$(awk '{ print $5 }' rows | xargs)" = "0 1 2" ] || complain "-r all: $(cat rows)"
done

# ---- beside busy processes, which end with it
expect_rows 0 $run env "LOAD_OF=$$" "$bin/all_reduce_perf" --ranks 2 --load 3 -b 64 -e 64 -n 2000 -J load.json
all_right 1
grep -q '^# Beside the ranks of each machine: 3 busy processes' out || complain "the load is not in the header: $(cat out)"
grep -q '"load": 3' load.json || complain "the load is not in load.json"
left=$(grep -lzx "LOAD_OF=$$" /proc/[0-9]*/environ 2>/dev/null)
[ -z "$left" ] || complain "busy processes are left: $left"

# ---- ways to call
for options in "-m 3" "-z 0" "-u 1" "-a 0" "-a 2" "-a 3" "-w 0" "--zero-copy"; do
	# shellcheck disable=SC2086
	expect_rows 0 $run "$bin/all_reduce_perf" --ranks 2 -b 4 -e 64K -f 128 -n 3 $options
	all_right 3
	# shellcheck disable=SC2086
	expect_rows 0 $run "$bin/barrier_perf" --ranks 2 -n 3 $options
	all_right 1 N/A
done
for options in "-c 0" "-c 0 --dirty 0"; do
	# shellcheck disable=SC2086
	expect_rows 0 $run "$bin/all_reduce_perf" -t 2 -b 4 -e 4 -n 3 $options
	[ "$(awk '{ print $9, $13 }' rows)" = "N/A N/A" ] || complain "unchecked: $(cat rows)"
done
# Ranks on several nodes have no common clock to verify a barrier by.
expect_rows 0 $run "$BUILD_DIR/launch/tuttirun" -n 2 bash -c "TUTTI_HOST_ID=\$RANK exec $bin/barrier_perf -n 3"
[ "$(awk '{ print $9, $13 }' rows)" = "N/A N/A" ] || complain "a barrier of two nodes: $(cat rows)"
grep -q 'Not verified' out || complain "two nodes' barrier says nothing"

# ---- percentiles and JSON
for collective in $collectives; do
	expect_rows 0 $run "$bin/${collective}_perf" --ranks 2 -b 4 -e 4K -f 32 -n 40 --percentiles -J $collective.json
	ordered
	json $collective.json "d['program'] == '${collective}_perf' and d['ranks'] == 2 and d['settings']['iters'] == 40 \
		and d['library'].startswith('Tutti ') and all(r['wrong'] == 0 and r['time_us'] > 0 and \
		0 < r['min_us'] <= r['p50_us'] <= r['p99_us'] <= r['max_us'] for r in rows)"
done
json all_reduce.json "[(r['bytes'], r['count'], r['in_place']) for r in rows][1:3] == [(4, 1, True), (128, 32, False)] \
	and set(rows[0]) == set('bytes count dtype op root in_place time_us algbw busbw wrong p50_us p99_us min_us \
	max_us'.split())"
json reduce.json "rows[0]['root'] == 0 and rows[0]['op'] == 'sum' and rows[0]['dtype'] == 'float'"
json all_to_all.json "len(rows) == 3 and rows[0]['op'] == 'none'"
json barrier.json "len(rows) == 1 and rows[0]['bytes'] == 0 and rows[0]['dtype'] == 'none'"
# A size that holds no whole number of elements: the row shows what was moved.
expect_rows 0 $run "$bin/all_reduce_perf" -t 2 -b 7 -e 10 -i 3 -n 2 -J odd.json
[ "$(awk '{ print $1, $2 }' rows | xargs)" = "4 1 8 2" ] || complain "7 and 10 bytes of float: $(cat rows)"
json odd.json "[(r['bytes'], r['count']) for r in rows][::2] == [(4, 1), (8, 2)]"
expect_rows 0 $run "$bin/all_gather_perf" -t 3 -b 31 -e 31 -n 2
[ "$(awk '{ print $1, $2 }' rows)" = "24 2" ] || complain "31 bytes of three ranks' floats: $(cat rows)"
# Of the environment nothing.
expect_rows 0 env -C / HOSTNAME=here USER=nobody SECRET=word "$bin/all_reduce_perf" -t 2 -b 4 -e 8 -f 2 -n 3 -c 0 -J "$scratch/a.json"
json a.json "all(r['wrong'] is None and 'p50_us' not in r for r in rows)"
! grep -qE "here|word|$scratch|nobody" a.json || complain "the environment shows: $(cat a.json)"
for how in "-t 2" "--ranks 2"; do
	# shellcheck disable=SC2086
	expect_rows 2 $run "$bin/all_reduce_perf" $how -b 4 -e 4 -J nowhere/a.json
	grep -q 'cannot write nowhere/a.json: No such' err || complain "an impossible file: $(cat err)"
	[ ! -s rows ] || complain "measured all the same: $(cat rows)"
done
expect_rows 3 $run "$bin/all_reduce_perf" -t 2 -b 4 -e 4 -n 3 -J /dev/full
grep -q 'cannot write /dev/full: No space' err || complain "a full disk: $(cat err)"

# ---- what goes wrong: two elements, one that arrived and one that was sent, of the last of 3 ranks
for collective in $collectives; do
	wrong=$BUILD_DIR/tests/wrong_${collective}_perf
	if [ $collective = barrier ]; then
		expect_rows 1 $run "$wrong" --ranks 3 -n 6 -w 0 -z 0 -J wrong.json
		[ "$(awk '{ print ($9 > 0) }' rows)" = 1 ] || complain "wrong barriers: $(cat rows)"
	else
		expect_rows 1 $run "$wrong" --ranks 3 -r 2 -b 480 -e 480 -n 6 -w 0 -J wrong.json
		[ "$(awk '{ print $9, $13 }' rows)" = "2 $(in_place_of $collective)" ] ||
			complain "wrong elements of $collective: $(cat rows)"
	fi
	json wrong.json "rows[0]['wrong'] > 0"
	grep -q 'Out of bounds values : 1 FAILED' out || complain "wrong values are not summed up: $(cat out)"
done
expect_rows 2 $run "$bin/broadcast_perf" -t 2 -r 2 -b 4 -e 4
grep -q 'there are 2 ranks' err || complain "-r 2 of 2 ranks: $(cat err)"
for options in "-x" "-d int7" "-o most" "-b 2 -e 1" "stray" "--ranks 2 -t 2" "-J" "--percentiles -m 2"; do
	# shellcheck disable=SC2086
	expect_rows 2 $run "$bin/all_reduce_perf" $options
	grep -q '^all_reduce_perf --help explains the options\.$' err || complain "no word of --help after $options"
done
expect_rows 2 $run "$bin/all_reduce_perf" -xq -n 2
grep -q 'unknown option -x\.' err || complain "-xq: $(head -1 err)"
expect_rows 2 $run "$bin/all_reduce_perf" --exact -n 2
grep -q 'unknown option --exact\.' err || complain "--exact: $(head -1 err)"
expect_rows 2 $run "$BUILD_DIR/launch/tuttirun" -n 2 "$bin/all_reduce_perf" --ranks 2
grep -q 'explains the options' err || complain "no word of --help from two ranks: $(cat err)"

# ---- more than there is memory: said before anything is taken, also where malloc would grant it
much=$(awk '/^MemAvailable:/ { printf "%d", $2 * 0.3 }' /proc/meminfo)
for how in "-t 2" "--ranks 2" "-t 2 --zero-copy"; do
	for size in 60000G "${much}K"; do
		# shellcheck disable=SC2086
		expect_rows 2 $run "$bin/all_reduce_perf" $how -b $size -J much.json
		grep -qE 'a rank needs [0-9.]+ [GT]iB of memory, the 2 on this machine [0-9.]+ [GT]iB in all, and [0-9.]+ [MG]iB are left' err ||
			complain "$how -b $size: $(cat err)"
		[ ! -s rows ] && [ ! -e much.json ] || complain "$how -b $size began all the same: $(cat rows)"
	done
done
expect_rows 0 $run "$bin/all_reduce_perf" -t 2 -b 4 -e 4 -n 1 -m 256 -u 16384
expect_rows 2 $run "$bin/all_reduce_perf" -t 2 -b 1G -e 1G -n 1 -m 1024       # 2 TiB a rank

# ---- a run that is ended leaves no file, an older one as it was, and no rank
# ended CODE SIGNAL WORD...: all_reduce_perf, which would run for long, after its first row.
ended()
{
	local code=$1 signal=$2 pid got
	shift 2
	: >out # of the run before: its rows would be taken for this one's
	env --default-signal="$signal" timeout --foreground -k 5 100 "$bin/all_reduce_perf" "$@" -b 8 -n 3000 \
		-e 16M -f 2097152 -w 0 >out 2>err &
	pid=$!
	until [ "$(grep -vc '^#' out)" -gt 0 ]; do
		kill -0 $pid 2>/dev/null || break
		read -rt 0.05 <> <(:)
	done
	kill -"$signal" "$(pgrep -P $pid)"
	wait $pid
	got=$?
	[ $got = "$code" ] || complain "exit code $got instead of $code after $signal to $*: $(cat err)"
	pgrep -f "$bin/all_reduce_perf.*-J $scratch" && complain "ranks are left after $signal"
}
mkdir ended
for how in "-t 2" "--ranks 2"; do
	for signal in INT TERM; do
		# shellcheck disable=SC2086
		ended $((128 + $(kill -l $signal))) $signal $how -J "$scratch/ended/new.json"
		[ -z "$(ls ended)" ] || complain "$how and $signal leave $(ls ended)"
	done
done
echo older >ended/old.json
ended 143 TERM --ranks 2 -J "$scratch/ended/old.json"
[ "$(cat ended/*)" = older ] || complain "an older file was lost: $(head ended/*)"
ln -s old.json ended/link.json
chmod 640 ended/old.json
expect_rows 0 $run "$bin/all_reduce_perf" -t 2 -b 4 -e 4 -n 1 -J ended/link.json
json ended/old.json "len(rows) == 2"
[ "$(ls ended)" = "$(printf 'link.json\nold.json')" ] && [ -L ended/link.json ] || complain "a link: $(ls -l ended)"
for file in ended nowhere/a; do
	expect_rows 2 $run "$bin/all_reduce_perf" -t 2 -b 4 -e 4 -n 1 -J "$file"
	grep -q "cannot write $file: " err || complain "-J $file: $(cat err)"
done
exit $failures
