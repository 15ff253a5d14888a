#!/usr/bin/env bash
# slow: 5 s
# no_asan: it times programs that other tests run here, too
# What would break: benchmarks with buffers on GPUs, as they are started, read and believed; and what they say where there
# is no GPU.
set -u
. "$SOURCE_DIR/tests/perf/common.sh"
with_data=${collectives/ barrier/}

# ---- without a driver, which this machine may have
expect_rows 2 env LD_LIBRARY_PATH= CUDA_VISIBLE_DEVICES= $run "$bin/all_reduce_perf" -g 2 -b 64 -e 64 -J none.json
grep -qE '^all_reduce_perf: no GPU: .*(libcuda\.so\.1|CUDA_ERROR_NO_DEVICE|no device)' err || complain "no driver: $(cat err)"
[ "$(wc -l <err)" = 1 ] && [ ! -s rows ] && [ ! -e none.json ] || complain "no driver: $(cat out err)"

export LD_LIBRARY_PATH=$BUILD_DIR/tests/cuda/driver

# ---- started in every way: 1, 2 and 4 ranks on one GPU, and a GPU each
for collective in $with_data; do
	na=$(in_place_of $collective)
	expect_rows 0 $run "$bin/${collective}_perf" -g 2 -b 0 -e 8K -f 8 -n 3 -J $collective.json
	all_right 5 "$na"
	json $collective.json "d['memory'] == 'cuda' and d['gpu'] == 'Shared memory' and d['ranks_per_gpu'] == 2 and \
		d['settings']['ngpus'] == 2 and d['settings']['blocking'] == 0 and all(r['wrong'] == 0 for r in rows)"
	expect_rows 0 $run "$bin/${collective}_perf" --ranks 2 -g 1 -b 1M -e 1M -n 2
	all_right 1 "$na"
done
expect_rows 0 $run "$bin/all_reduce_perf" -g 1 -b 16 -e 64 -f 2
all_right 3
expect_rows 0 env FAKE_CUDA_DEVICES=2 $run "$bin/all_reduce_perf" -t 2 -g 2 -b 256K -e 256K -n 2 -J four.json
all_right 1
grep -q '^# Buffers on GPUs: Shared memory, 2 ranks each; times by events\.$' out || complain "the header: $(cat out)"
json four.json "d['ranks'] == 4 and d['ranks_per_gpu'] == 2"
expect_rows 0 env FAKE_CUDA_DEVICES=4 $run "$bin/all_reduce_perf" --ranks 4 -g 1 -d all -b 1K -e 1K -n 2 -J gpus.json
all_right 14
json gpus.json "d['ranks_per_gpu'] == 1"
expect_rows 0 $run "$bin/all_reduce_perf" -t 2 -b 64 -e 64 -J host.json
json host.json "d['memory'] == 'host' and 'gpu' not in d and d['settings']['blocking'] == 1"

# ---- ways to call
for options in "-m 3" "-z 1" "-z 1 -m 3" "-u 1" "-a 0" "-w 0" "-m 2 -u 3 -d bfloat16 -o max"; do
	# shellcheck disable=SC2086
	expect_rows 0 $run "$bin/all_reduce_perf" -g 2 -b 4 -e 64K -f 128 -n 3 $options
	all_right 3
done
expect_rows 0 $run "$bin/all_reduce_perf" -g 2 -b 4 -e 4K -f 32 -n 40 --percentiles
ordered
expect_rows 0 $run "$bin/all_reduce_perf" -g 2 -b 4 -e 4 -n 3 -c 0 --dirty 0
[ "$(awk '{ print $9, $13 }' rows)" = "N/A N/A" ] || complain "unchecked: $(cat rows)"
# By kernels, and by replays.
for how in "-g 2" "--ranks 2 -g 1" "-g 2 --zero-copy" "--ranks 2 -g 1 --zero-copy"; do
	# shellcheck disable=SC2086
	expect_rows 0 $run "$bin/all_reduce_perf" $how -b 64 -e 64 -n 3 -G 2
	all_right 1
done

# ---- what goes wrong
for options in "-G 2" "-g 0" "-g 1 -G x" "-g 1 -G -1" "-g 2 -G 2 --percentiles" "-g 2 -G 2 -z 1" "-g 2 --ranks 2"; do
	# shellcheck disable=SC2086
	expect_rows 2 $run "$bin/all_reduce_perf" $options
	grep -q '^all_reduce_perf --help explains' err || complain "no word of --help after $options"
done
expect_rows 2 $run "$bin/barrier_perf" -g 2
grep -q 'a barrier has no buffers' err || complain "a barrier: $(cat err)"
# Memory that the GPU does not have: the message names it, and no rank waits for the others.
for how in "-g 2" "--ranks 2 -g 1"; do
	# shellcheck disable=SC2086
	expect_rows 3 env FAKE_CUDA_MEMORY=67108864 $run "$bin/all_reduce_perf" $how -b 64M -n 1
	grep -q 'cuMemAlloc_v2 failed with CUDA_ERROR_OUT_OF_MEMORY (2) on Shared memory' err || complain "$how: $(cat err)"
done
exit $failures
