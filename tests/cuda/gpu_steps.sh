# What gpu-test and gpu-perf share: their options, finding the GPU, building, steps with time limits, and the summary. To be
# sourced by them, with $out set; afterwards they set $programs and $with_cmocka.
quick='' pack='' built='' driver='' limit=600
passed=0 failed=0 skipped=0 wanting=()

wrong()
{
	echo "$0: $*; $0 --help says more" >&2
	exit 2
}

gpu_options()
{
	while [ $# -gt 0 ]; do
		case $1 in
		-h | --help)
			sed -n '2,/^set /{s/^# \{0,1\}//p}' "$0"
			exit 0
			;;
		--quick) quick=--quick ;;
		--pack) pack=1 ;;
		--build | --driver | --seconds | --out)
			[ $# -gt 1 ] || wrong "$1 needs a value"
			case $1 in
			--build) built=$(readlink -m "$2") ;;
			--driver) driver=$(readlink -m "$2") ;;
			--seconds) limit=$2 ;;
			--out) out=$2 ;;
			esac
			shift
			;;
		*) wrong "there is no option $1" ;;
		esac
		shift
	done
	[[ $limit =~ ^[0-9]+$ ]] || wrong "'$limit' is not a number of seconds"
	[ -z "$driver" ] || [ -e "$driver/libcuda.so.1" ] || wrong "there is no libcuda.so.1 in $driver"
}

# Whether there is a GPU, as the kernel or its tool says it, before anything is built; else the first line says so.
gpu_is_here()
{
	[ -n "$driver" ] || compgen -G '/dev/nvidia[0-9]*' >/dev/null || compgen -G '/proc/driver/nvidia/gpus/*' >/dev/null ||
		nvidia-smi -L 2>/dev/null | grep -q '^GPU' || {
		echo "No GPU here: no /dev/nvidia0, and nvidia-smi lists none. Nothing was run."
		return 1
	}
}

# where PROGRAM: its path in the build, wherever CMake has put it.
where()
{
	local path
	for path in "$build"/{tests,perf,tools,launch,api,examples/gpt,examples/gpt_cuda,.}/"$1"; do
		[ -x "$path" ] && [ -f "$path" ] && echo "$path" && return
	done
	return 1
}

# has_package NAME: pkg-config knows it.
has_package()
{
	command -v pkg-config >/dev/null && pkg-config --exists "$1"
}

# Builds $programs, and where cmocka is $with_cmocka, in build/gpu. With --build it finds them.
gpu_prepare()
{
	local targets=$programs options="-DTUTTI_TESTS=OFF -DTUTTI_GPU_TESTS=ON"
	mkdir -p "$out"
	begun=$SECONDS build=${built:-$PWD/build/gpu}
	export LD_LIBRARY_PATH="${driver:+$driver:}$build/lib:$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
	if [ -n "$built" ]; then
		where all_reduce_perf >/dev/null || { echo "There are no programs in $built." >&2 && return 1; }
		return 0
	fi
	if has_package cmocka; then
		options=-DTUTTI_TESTS=ON targets="$programs $with_cmocka"
	fi
	command -v ninja >/dev/null && options="$options -GNinja"
	echo "== building in build/gpu"
	# shellcheck disable=SC2086
	cmake -S . -B build/gpu -DCMAKE_BUILD_TYPE=Release -DTUTTI_PEERS=OFF $options >"$out/build.log" 2>&1 &&
		cmake --build build/gpu -j "$(nproc)" --target $targets >>"$out/build.log" 2>&1
	local code=$?
	[ $code = 0 ] || tail -n 30 "$out/build.log"
	echo "== built in $((SECONDS - begun)) s, exit code $code"
	return $code
}

# The shared libraries of the programs, but for those of the C library.
gpu_pack()
{
	local program path
	mkdir -p build/gpu/lib
	for program in $programs $with_cmocka; do
		path=$(where "$program") || continue
		ldd "$path" | awk '$3 ~ /^\// { print $3 }' | grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' |
			grep -v "/build/" | sort -u | xargs -r cp -uLt build/gpu/lib
	done
	echo "Packed: build/gpu, of which lib has $(du -sh build/gpu/lib | cut -f1). Elsewhere: script/gpu-test --build build/gpu"
}

# The GPUs stay awake until this script ends: tests/cuda/hold_gpus_main.c says why.
gpu_hold()
{
	exec 9> >(exec "$(where hold_gpus)" >"$out/hold_gpus.log" 2>&1)
}

# left_seconds MOST: at most so many, and no more than are left.
left_seconds()
{
	local left=$((limit - (SECONDS - begun)))
	echo $((left < $1 ? left : $1))
}

said()
{
	printf '%-8s %4s s  %s\n' "$1" "$2" "$3"
}

# step NAME SECONDS COMMAND...: runs it, with its output in NAME.log; its last lines are shown if it fails.
step()
{
	local name=$1 most start=$SECONDS code
	most=$(left_seconds "$2")
	shift 2
	if [ "$most" -lt 2 ]; then
		said "NO TIME" 0 "$name"
		failed=$((failed + 1)) wanting+=("$name: there was no time")
		return 1
	fi
	timeout -k 5 "$most" "$@" >"$out/$name.log" 2>&1 9>&-
	code=$?
	if [ $code = 0 ]; then
		said ok $((SECONDS - start)) "$name"
		passed=$((passed + 1))
		return 0
	elif [ $code = 77 ]; then
		skip "$name" "$(tail -n 1 "$out/$name.log")"
		return 0
	fi
	[ $code = 124 ] && code="124, after $most s"
	said FAILED $((SECONDS - start)) "$name: exit code $code from: $*"
	tail -n 12 "$out/$name.log" | sed 's/^/    /'
	failed=$((failed + 1)) wanting+=("$name: exit code $code")
	return 1
}

skip()
{
	said skipped 0 "$1: $2"
	skipped=$((skipped + 1))
}

summary()
{
	{
		echo "$passed passed, $failed failed, $skipped skipped, in $((SECONDS - begun)) s"
		[ ${#wanting[@]} = 0 ] || printf '    %s\n' "${wanting[@]}"
	} | tee "$out/summary.txt"
	[ "$failed" = 0 ]
}
