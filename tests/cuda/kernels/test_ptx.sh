#!/usr/bin/env bash
# no_asan: nvcc is not used there
# Breaks when the kernels' PTX lacks what the design relies on: packets of two 64-bit words in one instruction, flags with
# release and acquire at system scope (of turns and of messages' lanes, too), vectors of 16 bytes; or has what it may not
# have: loads through the cache that is not coherent, contraction, approximation, flushed subnormals. Of sm_90 on: sums and
# stores by multicast, which earlier GPUs lack.
set -euo pipefail
ptx=$BUILD_DIR/kernels.ptx
[ -e "$ptx" ] || {
	echo "this build has no kernels for GPUs: there was no nvcc, or TUTTI_CUDA is OFF"
	exit 77
}

# kernel NAME: its text; functions of channels are inlined.
kernel()
{
	sed -n "/^.visible .entry tutti_$1(/,/^}/p" "$ptx"
}

has()
{
	grep -qE -- "$2" <<<"$(kernel "$1")" || {
		echo "$1 lacks: $2"
		exit 1
	}
}

for name in v4.f32 acc::f32.v4.f16x2 acc::f32.v4.bf16x2; do
	grep -qF "multimem.ld_reduce.relaxed.sys.global.add.$name" "${ptx%.ptx}.90.ptx" || {
		echo "no sum of $name by multicast for sm_90"
		exit 1
	}
done
for access in multimem.st.relaxed.sys.global.v4.f32 fence.proxy.alias; do
	grep -qF "$access" "${ptx%.ptx}.90.ptx" || {
		echo "no $access for sm_90"
		exit 1
	}
done
if grep -F multimem "$ptx"; then
	echo "multimem is not for compute_75"
	exit 1
fi
for kernel in $(sed -n 's/^\tX(\([a-z_]*\), .*/\1/p' "$SOURCE_DIR/cuda/kernels/table.h"); do
	has "$kernel" '\.maxntid 512, 1, 1'
done
has packets 'st\.relaxed\.sys\.global\.v2\.u64'
has packets 'ld\.relaxed\.sys\.global\.v2\.u64'
has packets 'st\.relaxed\.sys\.global\.u64'
has lines 'st\.release\.sys\.global\.u64'
has lines 'st\.release\.gpu\.global\.u64' # between ranks of one GPU
has lines 'ld\.acquire\.sys\.global\.u64'
# A turn is told with what the kernel has moved before it, its own blocks' and then this one's; the stream acquires it.
has turn 'atom\.acq_rel\.gpu\.global\.add\.u64'
has turn 'st\.release\.sys\.global\.u32'
# A lane's numbers: the sender's behind the chunk, the receiver's behind its copy.
has messages 'st\.release\.sys\.global\.u64'
has messages 'ld\.acquire\.sys\.global\.u64'
for kernel in packets lines turn messages; do
	has $kernel 'ld\.relaxed\.sys\.global\.u64' # the abort word
	has $kernel 'bar\.sync|barrier\.sync'
done
for access in 'ld\.global\.v4\.u32' 'st\.global\.v4\.u32'; do
	grep -qE "$access" "$ptx" || {
		echo "no $access"
		exit 1
	}
done
# (An estimate begins the division of integers of 128 bits, which averages of 64 bits need; it ends exact.)
for text in "$ptx" "${ptx%.ptx}.90.ptx"; do
	if sed '/^\.func.*average_[IU]64/,/^}/d' "$text" |
		grep -nE '\.nc\.|ldu\.|fma\.rn\.f(32|64)|\.ftz|\.approx|\.volatile' | head -5 | grep .; then
		echo "this may not be there"
		exit 1
	fi
done
