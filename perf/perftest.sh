# perftest.sh: sourced by compare_ucx and compare_verbs. Leaves the caller in the checkout's root, with $build, $scratch and the
# functions below: programs of perftest, whose server and client run on this machine, beside Tutti's with 2 ranks, in turns.
cd "$(dirname "$0")/.." || exit 1
build=${BUILD_DIR:-build/release}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export TUTTI_WINDOW=0
port=18600

# pair ADDRESS PROGRAM OPTION...: the client's output.
pair()
{
	local server address=$1
	shift
	port=$((port + 1))
	timeout 60 "$@" -p $port >"$scratch/server" 2>&1 &
	server=$!
	until ss -ltn | grep -q ":$port "; do
		kill -0 $server 2>/dev/null || break
	done
	timeout 60 "$@" -p $port "$address" 2>&1
	kill $server 2>/dev/null
	wait $server 2>/dev/null
}

# tutti COLLECTIVE BYTES CALLS OPTION...: microseconds of a call in place.
tutti()
{
	timeout 100 "$build/launch/tuttirun" -n 2 "$build/perf/$1_perf" -b "$2" -e "$2" -n "$3" -c 0 "${@:4}" |
		awk '$1 ~ /^[0-9]/ { print $(NF - 3) }'
}

# rate BYTES: of such times, MB/s.
rate()
{
	awk -v bytes="$1" '{ print bytes / $1 }'
}

# median NAME: of the numbers in the file; perftest prints inf where its clock went wrong, which does not count.
median()
{
	grep -E '^[0-9.]+$' "$scratch/$1" | sort -n | awk '{ v[NR] = $1 } END { print NR ? v[int((NR + 1) / 2)] : "none" }'
}

# row NAME WORDS [NAME]: the median, and how many times that of the other.
row()
{
	awk -v words="$2" -v a="$(median "$1")" -v b="$(median "${3:-$1}")" \
		'BEGIN { printf "%-44s %10s %6s\n", words, a, (a + 0 > 0 && b + 0 > 0) ? sprintf("%.2f", a / b) : "-" }'
}
