#!/usr/bin/env bash
# slow: 8 s
# What would break: programs that start their own ranks by --ranks N do not do what those of tuttirun do, or end otherwise.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_RESTARTED
tuttirun="timeout -k 5 100 $BUILD_DIR/launch/tuttirun"
limited="timeout -k 5 100"
gpt=$BUILD_DIR/examples/gpt/gpt recover=$BUILD_DIR/examples/recover/recover
options="--steps 3 --sample 0 --layers 1 --channels 16 --heads 2 --seq 16 --deterministic 2 $SOURCE_DIR/README.md"

# ---- the same training
# shellcheck disable=SC2086
for n in 1 2 4; do
	expect 0 $limited "$gpt" --ranks $n --dump-loss own $options
	expect 0 $tuttirun -n $n "$gpt" --dump-loss launched $options
	[ "$(wc -l <own)" = 3 ] || complain "gpt --ranks $n: $(cat own)"
	cmp -s own launched || complain "gpt --ranks $n: $(cat own), instead of $(cat launched)"
done
expect 0 $limited "$recover" --steps 5 --ranks 2
cp out own
expect 0 $tuttirun -n 2 "$recover" --steps 5
cmp -s own out || complain "recover --ranks 2: $(cat own), instead of $(cat out)"

# ---- their ends
# shellcheck disable=SC2086
expect 1 $limited "$gpt" --ranks 2 --save /dev/null/nowhere $options
said '^gpt: rank [01] \(pid [0-9]+\) exited with code 1; the job was ended$'
# shellcheck disable=SC2086
expect 2 $limited "$gpt" --ranks 2 $options --heads 3
# shellcheck disable=SC2086
expect 1 $tuttirun -n 2 "$gpt" --ranks 4 $options
said 'the launcher has started 2 ranks'
expect 2 $tuttirun -n 2 "$recover" --ranks 4
said 'recover: --ranks 4 starts ranks where no launcher does, and one has started 2: leave it out'
expect 2 $limited "$recover" --ranks
said "recover: --ranks '' is not possible: it is a number from 1 to 4096"
expect 2 env RANK=0 $limited "$recover" --ranks 2 # half of a launcher's variables
said 'WORLD_SIZE is not'
for program in parameter_server inference_server rpc_pipeline; do
	expect 2 $tuttirun -n 2 "$BUILD_DIR/examples/$program/$program" --ranks 3
	said "$program: --ranks 3 starts ranks where no launcher does, and one has started 2: leave it out"
done

# ---- output that is lost
if [ -e /dev/full ]; then
	for program in tests/example_evaluate "tests/example_evaluate --ranks 2" "examples/mirrored/mirrored --ranks 2" \
		examples/data_parallel/data_parallel "examples/gpt/gpt $options"; do
		# shellcheck disable=SC2086
		$limited "$BUILD_DIR"/$program >/dev/full 2>err
		code=$?
		[ $code = 3 ] || complain "$program, with a full disk: code $code, $(cat err)"
	done
fi
expect 2 $limited "$BUILD_DIR/examples/data_parallel/data_parallel" --mirrored 4
said '^usage: data_parallel'

# ---- perf
for program in ddp_step overlap all_reduce_perf; do
	few="--rounds 1"
	[ $program = all_reduce_perf ] && few="-b 8 -e 8 -n 1"
	# shellcheck disable=SC2086
	expect 0 $limited "$BUILD_DIR/perf/$program" $few --ranks 2
	grep -qE '^#.* 2 ranks' out || complain "$program --ranks 2: $(cat out)"
	expect 2 $tuttirun -n 2 "$BUILD_DIR/perf/$program" --ranks 3
	said 'launcher'
done
expect 0 timeout -k 5 300 "$SOURCE_DIR/perf/spawned" --build "$BUILD_DIR" --rounds 1 --iterations 2
[ "$(grep -cE '^ +[0-9]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$' out)" = 5 ] || complain "perf/spawned: $(cat out)"
expect 3 timeout -k 5 100 "$SOURCE_DIR/perf/spawned" --build "$BUILD_DIR" --ranks 5000 --rounds 1
exit $failures
