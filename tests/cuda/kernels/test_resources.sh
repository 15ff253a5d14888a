#!/usr/bin/env bash
# no_asan: nvcc is not used there
# Breaks when a kernel takes more of a GPU than it was designed for: its registers, stack or shared memory differ from
# resources.txt, a block does not fit, or a loop spills. The build's own report is read; `test_resources.sh --update` writes
# the table anew.
set -euo pipefail
here=$SOURCE_DIR/tests/cuda/kernels
report=$BUILD_DIR/kernels.resources
most_saved=128 # bytes of the caller's registers that a function compiled for itself may have to save, once a call
[ -e "$report" ] || {
	echo "this build has no kernels for GPUs: there was no nvcc, or TUTTI_CUDA is OFF"
	exit 77
}

measured()
{
	sed -n -e 's/^\(sm_[0-9]*\): .*/\1/p' -e "s/.*Function properties for 'tutti_\(.*\)':/kernel \1/p" \
		-e 's/.*used \([0-9]*\) registers.* \([0-9]*\) stack, \([0-9]*\) bytes smem.*/\1 \2 \3/p' "$report" |
		awk '/^sm_/ { gpu = $1; next } /^kernel/ { kernel = $2; next } { print gpu, kernel, $0 }' | sort
}

if [ "${1:-}" = --update ]; then
	{ sed -n '/^#/p' "$here/resources.txt" && measured; } >"$here/resources.new"
	mv "$here/resources.new" "$here/resources.txt"
fi
# Each nvcc gives out registers in its own way.
if [ "# $(sed -n '/^nvcc /p' "$report")" != "$(head -1 "$here/resources.txt")" ]; then
	echo "not compared with resources.txt, which is of another nvcc"
elif ! diff <(sed '/^#/d' "$here/resources.txt") <(measured); then
	echo "differs from resources.txt"
	exit 1
fi
# Registers are given out in units of 8 a thread; 64 Ki are there for a block of 512 threads.
measured | awk 'int(($3 + 7) / 8) * 8 * 512 > 65536 { print $1, $2 " does not fit: " $3 " registers"; bad = 1 } END { exit bad }'
# Nor may those of the example.
sed -n 's/.* \([0-9]*\) bytes spill stores.*/\1/p' "$report" "$BUILD_DIR/examples/gpt_cuda/gpt_kernels.resources" |
	awk -v most=$most_saved '$1 > most { print "a function spills " $1 " bytes"; bad = 1 } END { exit bad }'
