#!/usr/bin/env bash
# slow: 20 s
# no_asan: it times programs that other tests run here, too
# What would break: script/gpu-test and script/gpu-perf, which nobody else runs before a GPU is borrowed for minutes: their
# options, their steps from end to end on the fake driver, and what they say of failures, of missing time and without a GPU.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
unset WORLD_SIZE RANK
driver=$BUILD_DIR/tests/cuda/driver
test=$SOURCE_DIR/script/gpu-test perf=$SOURCE_DIR/script/gpu-perf

said()
{
	grep -qE -- "$1" out || complain "no '$1' in: $(cat out err)"
}

# ---- no GPU: the first line says so
if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null && ! compgen -G '/proc/driver/nvidia/gpus/*' >/dev/null; then
	for script in "$test" "$perf"; do
		expect 77 "$script"
		[ "$(head -1 out)" = 'No GPU here: no /dev/nvidia0, and nvidia-smi lists none. Nothing was run.' ] ||
			complain "without a GPU: $(cat out err)"
	done
fi
for script in "$test" "$perf"; do
	expect 0 "$script" --help
	said '--driver FOLDER'
	for words in --often --build '--seconds x' '--driver /nowhere' stray; do
		# shellcheck disable=SC2086
		expect 2 "$script" $words
		grep -q -- '--help says more$' err || complain "$words: $(cat err)"
	done
	expect 1 "$script" --driver "$driver" --build "$PWD" --out "$PWD/none"
done

# ---- a build as on a machine without cmocka, with one GPU that has queues as a real one
mkdir -p build/{tests,perf,tools,launch}
for program in api ranks; do ln -s "$BUILD_DIR/tests/$program" build/tests; done
ln -s "$BUILD_DIR"/perf/*_perf "$BUILD_DIR/perf/limits" build/perf
ln -s "$BUILD_DIR/tools/tutti-info" build/tools
ln -s "$BUILD_DIR/launch/tuttirun" build/launch
ln -s "$BUILD_DIR"/examples/{gpt/gpt,gpt_cuda/gpt_cuda} build
expect 0 timeout 300 env FAKE_CUDA_CONNECTIONS=cuda "$test" --quick --driver "$driver" --build "$PWD/build" --out "$PWD/gpu-test"
said '^ok .* info_2$'
said '^      on .* by turns; multicast \(NVLS\): no: '
said '^      long messages of device buffers in stages, from GPU to GPU$'
said '^ok .* threads_2$'
said '^ok .* death_2$'
said '^ok .* stream_all_to_all_2$'
said '^ok .* graph_all_reduce_2$'
said '^ok .* graph_sendrecv_2$'
said '^ok .* shared_sendrecv_2$'
said '^ok .* gpt_cublas_fsdp_2$'
said '^ok .* gpt_plain_ddp_1$'
said '^skipped .* test_streams: cmocka is not installed$'
said '^skipped .* memcheck: '
said '^[0-9]+ passed, 0 failed, [0-9]+ skipped, in [0-9]+ s$'
[ "$(tail -n 1 out)" = "$(cat gpu-test/summary.txt)" ] || complain "summary.txt: $(cat gpu-test/summary.txt)"

# ---- the tables, with an NCCL that calls Tutti, as in test_nccl.sh; and a step that fails: the others go on, and it is shown
mkdir nccl
ln -s "$driver/libcuda.so.1" nccl
ln -s "$BUILD_DIR/tests/nccl_plugin.so" nccl/libnccl.so.2
rm build/perf/gather_perf
printf '#!/bin/sh\necho it breaks\nexit 1\n' >build/perf/gather_perf
chmod +x build/perf/gather_perf
expect 1 timeout 300 "$perf" --quick --driver "$PWD/nccl" --build "$PWD/build" --out "$PWD/gpu-perf"
said '^gpu_copy_gbs '
said '^ok .* NCCL 2\.30\.4, several ranks on a GPU$'
said '^FAILED .* gather_2_stream: exit code 1 from: '
said '^    it breaks$'
said '^ok .* all_to_all_2_stream$'
said '^    gpt_cuda, 2 ranks: [0-9]+ tokens/s$'
said '^# Shared memory: NCCL 2\.30\.4, Tutti '
said '^### all_reduce, bfloat16, 2 ranks as threads, 2 a GPU, by stream$'
said '^### all_reduce, float, 2 ranks as processes, 2 a GPU, by stream$'
said '^ok .* nccl_sendrecv_2_graph$'
# Of messages short ones have no way but the engine in a stream, and a kernel in a graph.
for how in stream graph; do
	awk -v "name=### sendrecv, float, 2 ranks as threads, 2 a GPU, by $how" '/^### / { is_it = $0 == name } is_it' \
		gpu-perf/table.md >"sendrecv_$how"
	[ "$(grep -cE '^\| [0-9]+ (Ki)?B \| [0-9.]+ \| [0-9.]+ \| .* \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \|$' "sendrecv_$how")" = 7 ] ||
		complain "sendrecv by $how: $(cat "sendrecv_$how")"
done
[ "$(grep -cE '^\| [0-9]+ (Ki)?B \| [0-9.]+ \| [0-9.]+ \| - \| - \| ' sendrecv_stream)" = 6 ] || complain "in a stream: $(cat sendrecv_stream)"
[ "$(grep -c -- ' - |' sendrecv_graph)" = 0 ] || complain "in a graph: $(cat sendrecv_graph)"
said '^\| 64 KiB \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \| - \| - \|$'
said '^\| 64 KiB \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \|$'
said '^[0-9]+ passed, [12] failed, [0-9]+ skipped, in [0-9]+ s$'
said '^    gather_2_stream: exit code 1$'
[ "$(grep -c '^### ' gpu-perf/table.md)" -ge 10 ] || complain "table.md: $(cat gpu-perf/table.md)"

# ---- no time: all is counted, and shown
for script in "$test" "$perf"; do
	expect 1 timeout 300 "$script" --quick --seconds 1 --driver "$driver" --build "$PWD/build" --out "$PWD/late"
	said '^NO TIME .* '
	said '^0 passed, [0-9]+ failed, [0-9]+ skipped, in [0-9]+ s$'
	said '^    [a-z_0-9]+: there was no time$'
done
said '^skipped .* nccl: there is none beside the driver in '

# ---- GPUs for each rank, of programs that only say so: what else is measured then, and what is predicted
mkdir -p apart/perf
cat >apart/perf/all_reduce_perf <<'END'
#!/bin/bash
# Writes into -J FILE what FILE's name says was measured.
for last; do [ "$before" = -J ] && file=$last; before=$last; done
how="\"datatype\": \"float\", \"cudagraph\": 0" zero=0 name=$(basename "$0")
[[ $* == *--zero-copy* ]] && zero=1
[[ $* == *-G* ]] && how="\"datatype\": \"float\", \"cudagraph\": 5"
[[ $* =~ -g\ ([0-9]+) ]]
echo "{\"program\": \"$name\", \"library\": \"Tutti 1\", \"ranks\": ${BASH_REMATCH[1]}, \"nodes\": ${NODES:-1}, \"memory\": \"cuda\",
	\"gpu\": \"A\", \"ranks_per_gpu\": 1, \"settings\": {$how, \"nthreads\": ${THREADS:-2}, \"zero_copy\": $zero}, \"rows\": [
	{\"bytes\": 67108864, \"in_place\": false, \"time_us\": 500, \"busbw\": 1}]}" >"$file"
END
chmod +x apart/perf/all_reduce_perf
for program in all_gather reduce_scatter broadcast reduce gather scatter all_to_all sendrecv; do ln apart/perf/all_reduce_perf "apart/perf/${program}_perf"; done
for program in limits tuttirun gpt_cuda; do ln -s /bin/true "apart/$program"; done
ln -s /bin/true apart/perf/limits
expect 0 timeout 300 "$perf" --driver "$driver" --build "$PWD/apart" --out "$PWD/gpus"
said '^ok .* all_reduce_4_graphzerocopy$'
said '^### all_reduce, float, 4 ranks as threads, 1 a GPU, by stream$'
said '^\| 64 MiB \| 500\.00 \| 1\.00 \| 255\.03 \| 0\.51 \| '
said '^### all_reduce, float, 4 ranks as threads, 1 a GPU, by graph, zero copy; predicted by the switch, where GPUs have multicast$'
said '^\| 64 MiB \| 500\.00 \| 1\.00 \| 211\.31 \| 0\.42 \| '
NODES=2 THREADS=1 apart/perf/all_reduce_perf -g 8 -J gpus/nodes.json
expect 0 python3 "$SOURCE_DIR/perf/gpu_model.py" gpus
said '^### all_reduce, float, 8 ranks on 2 nodes as processes, 1 a GPU, by stream$'
said '^\| 64 MiB \| 500\.00 \| 1\.00 \| 621\.36 \| 1\.24 \| - \| - \| - \|$'

# ---- the model alone
expect 0 python3 "$SOURCE_DIR/perf/gpu_model.py" --predict-apart 4
said '^\| 64 MiB \| 255\.0 \| 213\.6 \| 308\.0 \| 621\.4 \|$'
expect 0 python3 "$SOURCE_DIR/perf/gpu_model.py" --predict 2 8
said '^\| 8 B \| 1\.9 \| '
expect 1 python3 "$SOURCE_DIR/perf/gpu_model.py" "$PWD/none"
expect 2 python3 "$SOURCE_DIR/perf/gpu_model.py"
exit $failures
