#!/usr/bin/env bash
# slow: 20 s
# What would break: examples/gpt_cuda, which trains on GPUs: losses and norms of gradients that are not those of examples/gpt,
# with any strategy and type, with ranks that share a GPU or have one each, by cuBLAS or without it; and what it says where
# there is no cuBLAS and no GPU. The GPUs are the fake driver's.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
gpt=$BUILD_DIR/examples/gpt/gpt gpt_cuda=$BUILD_DIR/examples/gpt_cuda/gpt_cuda text=$SOURCE_DIR/README.md
driver=$BUILD_DIR/tests/cuda/driver
export FAKE_CUDA_MACHINE=$scratch/machine FAKE_CUDA_SMS=1
small="--batch 4 --seq 12 --channels 16 --heads 2"

# same LIMIT HOW RANKS OPTION...: both programs have the same losses
same()
{
	rm -f machine*
	# shellcheck disable=SC2086
	LD_LIBRARY_PATH=$driver timeout 200 bash "$SOURCE_DIR/tests/cuda/gpt_losses.sh" "$BUILD_DIR" "$1" "$2" "$3" $small \
		--sample 0 "${@:4}" >out || complain "gpt_cuda --matmul ${*:2} differs from gpt: $(cat out)"
	echo "$2, $3 ranks, ${*:4}: $(tail -n 1 out)"
	! grep '^gpt_cuda: ' gpt_cuda.txt || complain "gpt_cuda has something to say"
}

# written PROGRAM: the text that it has written
written()
{
	sed -n '/^what it writes/,/^parameters/p' "$1.txt" | sed '$d'
}

# What it writes, character by character, is the same, too.
same 1e-5 plain 1 --strategy ddp --micro-batches 3 --sample 20
written gpt | grep -q . && diff <(written gpt) <(written gpt_cuda) || complain "it writes another text"
same 1e-5 cublas 1 --strategy fsdp
for n in 2 4; do
	for strategy in ddp zero1 zero2 fsdp; do
		same 1e-5 plain $n --strategy $strategy
	done
done
same 1e-5 plain 4 --strategy hsdp --shard-size 2
same 1e-5 plain 2 --strategy local_sgd --local-steps 5
same 1e-5 plain 6 --strategy ddp # two of them have no sequence
same 1e-5 cublas 6 --strategy zero2
FAKE_CUDA_DEVICES=2 same 1e-5 cublas 2 --strategy ddp # a GPU each
# Of 16 bits: a rounding that goes the other way is a difference of 4e-3 in a number.
same 1e-3 plain 2 --strategy zero1 --dtype bf16 --reduce bf16
same 1e-3 cublas 2 --strategy fsdp --dtype f16 --reduce f16 --loss-scale -1

# ---- where it cannot
# refused WORDS OPTION...
refused()
{
	expect 2 "$gpt_cuda" "${@:2}" "$text"
	grep -qF -- "$1" err || complain "gpt_cuda ${*:2}: no '$1' in $(cat err)"
}

mkdir no_cublas
ln -s "$driver/libcuda.so.1" no_cublas
touch no_cublas/libcublas.so.1{2,3} # which hide those that are installed
export LD_LIBRARY_PATH=$PWD/no_cublas
expect 0 "$gpt_cuda" $small --steps 1 --sample 1 "$text"
grep -q '^gpt_cuda: no cuBLAS: neither libcublas.so.13 nor .*; matrices are multiplied by kernels of this program' err ||
	complain "without cuBLAS it says: $(cat err)"
refused 'gpt_cuda: no cuBLAS: neither libcublas.so.13 nor libcublas.so.12 can be loaded' --matmul cublas
refused 'gpt_cuda: --matmul slow is neither cublas nor plain' --matmul slow
mkdir no_driver
touch no_driver/libcuda.so.1
LD_LIBRARY_PATH=$PWD/no_driver refused 'gpt_cuda: no GPU: '
FAKE_CUDA_DEVICES=0 refused 'gpt_cuda: no GPU: the driver has no device'
refused 'gpt_cuda --help has all options' --what
expect 2 "$gpt" --matmul plain "$text"
grep -q '^gpt: --matmul is an option of gpt_cuda' err || complain "gpt --matmul: $(cat err)"
exit $failures
