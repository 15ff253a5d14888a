#!/usr/bin/env bash
# slow: 3 s
# no_asan: it times programs that other tests run here, too
# What would break: NCCL's numbers in the tables of GPUs: wrong types, operations or blocks behind the driver's calls. The
# library here is one of that name which calls Tutti, and the GPU is the fake one.
set -u
. "$SOURCE_DIR/tests/perf/common.sh"
with_data=${collectives/ barrier/}
mkdir nccl
ln -s "$BUILD_DIR/tests/nccl_plugin.so" nccl/libnccl.so.2
export LD_LIBRARY_PATH=$BUILD_DIR/tests/cuda/driver:$PWD/nccl

for collective in $with_data; do
	expect_rows 0 $run "$bin/nccl_${collective}_perf" -g 3 -b 0 -e 8K -f 8 -n 3 -r 1 -J $collective.json
	all_right 5 "$(in_place_of $collective)"
	json $collective.json "d['library'] == 'NCCL 2.30.4' and d['memory'] == 'cuda' and all(r['wrong'] == 0 for r in rows)"
done
expect_rows 0 $run "$bin/nccl_all_reduce_perf" -g 2 -d all -o all -b 1K -e 1K -n 2
# 12 of the types, and not the three operations of bits.
all_right 60
grep -q '^# int16 sum: NCCL has no such type\.$' out || complain "left out: $(grep '^#' out)"
expect_rows 0 $run "$bin/nccl_all_reduce_perf" -g 1 -b 64 -e 64 -n 2
all_right 1

# ---- what cannot be had
expect_rows 2 $run "$bin/nccl_all_reduce_perf" -t 2 -b 64
grep -q 'NCCL has memory of GPUs only: -g is needed' err || complain "-t 2: $(cat err)"
expect_rows 2 $run "$bin/nccl_all_reduce_perf" --ranks 2 -g 1
grep -q 'ranks are threads here' err || complain "--ranks: $(cat err)"
: >empty
ln -sf "$PWD/empty" nccl/libnccl.so.2
expect_rows 77 $run "$bin/nccl_all_reduce_perf" -g 2 -b 64
grep -q 'nccl_all_reduce_perf: libnccl.so.2 is not here' err || complain "no NCCL: $(cat err)"
exit $failures
