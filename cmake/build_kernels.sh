#!/bin/sh
# build_kernels.sh TOOLS SOURCE KERNELS OUTPUT ARCHITECTURE...: KERNELS, a file below SOURCE, as OUTPUT.fatbin, for each
# architecture (80 is sm_80), and as PTX for later ones. TOOLS is the folder of nvcc. Beside it OUTPUT.resources, which says for
# each architecture what ptxas and nvlink report, and the PTX: OUTPUT.ptx of compute_75, and OUTPUT.90.ptx for those from sm_90
# on, which have more instructions.
#
# Functions are compiled for themselves (ptxas -c) and then linked: kernels share them. ptxas alone compiles all of them
# anew for each kernel, which takes five times as long and gives twice the bytes.
set -e
tools=$1 source=$2 kernels=$3 output=$4
shift 4
images=
for generation in 75 90; do
	ptx=$output.$generation.ptx
	[ $generation = 75 ] && ptx=$output.ptx
	"$tools/nvcc" -ptx -std=c++17 -O3 -fmad=false -Werror all-warnings -Xcompiler=-Wall -arch=compute_$generation \
		-I "$source" -I "$source/include" "$source/$kernels" -o "$ptx"
	images="$images --image3=kind=ptx,sm=$generation,file=$ptx"
done
"$tools/nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/nvcc \1/p' >"$output.resources"
for architecture; do
	part=$output.sm_$architecture
	ptx=$output.ptx
	[ "$architecture" -ge 90 ] && ptx=$output.90.ptx
	for command in "ptxas -c -v -O3 -arch=sm_$architecture $ptx -o $part.o" \
		"nvlink -v -arch=sm_$architecture $part.o -o $part.cubin"; do
		echo "sm_$architecture: ${command%% *}" >>"$output.resources"
		# shellcheck disable=SC2086
		"$tools"/$command >>"$output.resources" 2>&1 || {
			cat "$output.resources" >&2
			exit 1
		}
	done
	images="$images --image3=kind=elf,sm=$architecture,file=$part.cubin"
	rm "$part.o"
done
# shellcheck disable=SC2086
"$tools/fatbinary" -64 --create="$output.fatbin" --compress-all $images
rm "$output".sm_*.cubin
