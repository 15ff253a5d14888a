#!/bin/sh
# How an image of kernels for GPUs is made, in steps that may run at the same time (cuda.cmake). TOOLS is the folder of nvcc,
# IMAGE the path of all outputs without what follows the name, an architecture 80 for sm_80.
#
#     ptx TOOLS SOURCE KERNELS IMAGE       KERNELS, a file below SOURCE, as IMAGE.ptx: of compute_75, for all GPUs before sm_90
#     ptx90 TOOLS SOURCE KERNELS IMAGE     IMAGE.90.ptx: for those from sm_90 on, which have more instructions
#     cubin TOOLS IMAGE ARCHITECTURE       IMAGE.sm_80.cubin, and IMAGE.sm_80.resources: what ptxas and nvlink report
#     fatbin TOOLS IMAGE ARCHITECTURE...   IMAGE.fatbin of all that, and IMAGE.resources of those of the architectures
#
# Functions are compiled for themselves (ptxas -c) and then linked: kernels share them. ptxas alone compiles all of them
# anew for each kernel, which takes five times as long and gives twice the bytes.
set -e
step=$1 tools=$2
shift 2

# compile GENERATION OUTPUT
compile() {
	"$tools/nvcc" -ptx -std=c++17 -O3 -fmad=false -Werror all-warnings -Xcompiler=-Wall -arch="compute_$1" \
		-I "$source" -I "$source/include" "$source/$kernels" -o "$2"
}

# report RESOURCES TOOL OPTION...: what the tool says goes to RESOURCES, and where it fails to the user, too.
report() {
	resources=$1 tool=$2
	shift 2
	echo "sm_$architecture: $tool" >>"$resources"
	"$tools/$tool" -v -arch="sm_$architecture" "$@" >>"$resources" 2>&1 || {
		cat "$resources" >&2
		exit 1
	}
}

case $step in
ptx | ptx90)
	source=$1 kernels=$2 image=$3
	if [ "$step" = ptx ]; then
		compile 75 "$image.ptx"
	else
		compile 90 "$image.90.ptx"
	fi
	;;
cubin)
	architecture=$2 part=$1.sm_$2 ptx=$1.ptx
	[ "$architecture" -ge 90 ] && ptx=$1.90.ptx
	rm -f "$part.resources"
	report "$part.resources" ptxas -c -O3 "$ptx" -o "$part.o"
	report "$part.resources" nvlink "$part.o" -o "$part.cubin"
	rm "$part.o"
	;;
fatbin)
	image=$1
	shift
	"$tools/nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/nvcc \1/p' >"$image.resources"
	for architecture; do
		cat "$image.sm_$architecture.resources" >>"$image.resources"
		set -- "$@" "--image3=kind=elf,sm=$architecture,file=$image.sm_$architecture.cubin"
		shift
	done
	"$tools/fatbinary" -64 --create="$image.fatbin" --compress-all "--image3=kind=ptx,sm=75,file=$image.ptx" \
		"--image3=kind=ptx,sm=90,file=$image.90.ptx" "$@"
	;;
esac
