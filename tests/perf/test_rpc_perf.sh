#!/usr/bin/env bash
# slow: 5 s
# no_asan: tests/rpc makes the calls under ASan, and gRPC and UCX have leaks of their own
# no_tsan: gRPC and UCX are not built for it
# What would break: a benchmark of calls whose answers nobody compares, a contender that is left out in silence.
set -u
. "$SOURCE_DIR/tests/perf/common.sh"
perf="timeout -k 5 100 $BUILD_DIR/perf/rpc_perf"
tuttirun="$BUILD_DIR/launch/tuttirun"

expect 0 timeout -k 5 200 "$tuttirun" -n 2 "$BUILD_DIR/perf/rpc_perf" --rounds 2 --calls 100 --mib 2
grep -q '^# rpc_perf of Tutti .*; 2 rounds of 100 calls, 0 busy processes' out || complain "the head: $(cat out)"
for peer in ucx grpc; do
	grep -qE "^# (no )?$peer: " out || complain "no word about $peer: $(cat out)"
done
# Rows have a number, or -, for each contender: messages, rpc, rpc_pool, and the peers that were found.
columns=$((3 + $(grep -cE '^# (ucx|grpc): ' out)))
awk -v n="$columns" '!/^#/ { rows++; for (i = NF - n + 1; i <= NF; i++) if (!($i > 0 || $i == "-")) bad = 1 }
	END { exit bad || rows != 10 }' out || complain "the rows: $(cat out)"
expect 0 $perf --ranks 2 --rounds 1 --calls 64 --mib 1
refuses rpc_perf "--rounds 0" "--calls 63" "--mib 0" "--load x" --no-such-flag 5
expect 2 env RANK=0 WORLD_SIZE=1 $perf
grep -q 'needs 2 ranks, not 1' err || complain "one rank: $(cat err)"
exit $failures
