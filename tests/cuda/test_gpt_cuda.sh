#!/usr/bin/env bash
# slow: 20 s
# What would break: examples/gpt_cuda, which trains on GPUs: losses and norms of gradients that are not those of examples/gpt,
# with any strategy and type, with ranks that share a GPU or have one each, by cuBLAS or without it; and what it says where
# there is no cuBLAS and no GPU. The GPUs are the fake driver's.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
gpt=$BUILD_DIR/examples/gpt/gpt gpt_cuda=$BUILD_DIR/examples/gpt_cuda/gpt_cuda tuttirun=$BUILD_DIR/launch/tuttirun
driver=$BUILD_DIR/tests/cuda/driver
export FAKE_CUDA_MACHINE=$scratch/machine FAKE_CUDA_SMS=1
steps=20 small="--batch 4 --seq 12 --channels 16 --heads 2 --sample 12"
cat /usr/share/common-licenses/* >text

# metrics.csv has step, time, loss, norm of the gradients, rate. Numbers are compared as text first: NaN is near nothing.
are_near()
{
	paste -d , "$1" "$2" | awk -F , -v steps="$steps" -v limit="$3" '
		function number(x) { return x ~ /^[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?$/ }
		function far(a, b) { return a > b ? a - b : b - a }
		NR > 1 && number($3) && number($4) && number($8) && number($9) && $1 == $6 && far($3, $8) <= limit &&
			far($4, $9) <= limit * $4 { rows++; next }
		NR > 1 { print "not near: " $0 }
		END { exit rows != steps }'
}

# train PROGRAM RANKS OPTION...: in PROGRAM.csv and PROGRAM.txt
train()
{
	local name=${1##*/}
	rm -rf log machine*
	# shellcheck disable=SC2086
	timeout 200 "$tuttirun" -n "$2" "$1" $small --steps $steps --log log "${@:3}" text >"$name.txt" 2>"$name.err" ||
		complain "$name ${*:2}: $(cat "$name.err")"
	cp log/metrics.csv "$name.csv"
	grep -q "parameters are the same to the bit on $2 rank" "$name.txt" || complain "$name ${*:2}: $(cat "$name.txt")"
}

# same LIMIT HOW RANKS OPTION...: both programs have the same losses
same()
{
	train "$gpt" "${@:3}"
	LD_LIBRARY_PATH=$driver train "$gpt_cuda" "${@:3}" --matmul "$2"
	are_near gpt.csv gpt_cuda.csv "$1" || complain "gpt_cuda --matmul ${*:2} has other losses than gpt"
	[ ! -s gpt_cuda.err ] || complain "gpt_cuda says: $(cat gpt_cuda.err)"
}

# What it writes, character by character, is the same, too.
same 1e-5 plain 1 --strategy ddp --micro-batches 3
diff <(sed -n '/^what it writes/,/^parameters/p' gpt.txt | sed '$d') <(sed -n '/^what it writes/,/^parameters/p' gpt_cuda.txt |
	sed '$d') || complain "it writes another text"
same 1e-5 cublas 1 --strategy fsdp
for n in 2 4; do
	for strategy in ddp zero1 zero2 fsdp; do
		same 1e-5 plain $n --strategy $strategy --sample 0
	done
done
same 1e-5 plain 4 --strategy hsdp --shard-size 2
same 1e-5 plain 2 --strategy local_sgd --local-steps 5
same 1e-5 plain 6 --strategy ddp --sample 0 # two of them have no sequence
same 1e-5 cublas 6 --strategy zero2 --sample 0
FAKE_CUDA_DEVICES=2 same 1e-5 cublas 2 --strategy ddp # a GPU each
# Of 16 bits: a rounding that goes the other way is a difference of 4e-3 in a number.
same 1e-3 plain 2 --strategy zero1 --dtype bf16 --reduce bf16
same 1e-3 cublas 2 --strategy fsdp --dtype f16 --reduce f16 --loss-scale -1

# ---- where it cannot
# refused WORDS OPTION...
refused()
{
	expect 2 "$gpt_cuda" "${@:2}" text
	grep -qF -- "$1" err || complain "gpt_cuda ${*:2}: no '$1' in $(cat err)"
}

mkdir no_cublas
ln -s "$driver/libcuda.so.1" no_cublas
touch no_cublas/libcublas.so.1{2,3} # which hide those that are installed
export LD_LIBRARY_PATH=$PWD/no_cublas
expect 0 "$gpt_cuda" $small --steps 1 text
grep -q '^gpt_cuda: no cuBLAS: neither libcublas.so.13 nor .*; matrices are multiplied by kernels of this program' err ||
	complain "without cuBLAS it says: $(cat err)"
refused 'gpt_cuda: no cuBLAS: neither libcublas.so.13 nor libcublas.so.12 can be loaded' --matmul cublas
refused 'gpt_cuda: --matmul slow is neither cublas nor plain' --matmul slow
mkdir no_driver
touch no_driver/libcuda.so.1
LD_LIBRARY_PATH=$PWD/no_driver refused 'gpt_cuda: no GPU: '
FAKE_CUDA_DEVICES=0 refused 'gpt_cuda: no GPU: the driver has no device'
refused 'usage: gpt_cuda [options]' --what
expect 2 "$gpt" --matmul plain text
grep -q '^gpt: --matmul is an option of gpt_cuda' err || complain "gpt --matmul: $(cat err)"
exit $failures
