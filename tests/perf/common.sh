# What the tests of benchmark programs share. To be sourced; leaves the caller in a scratch folder, with
# $bin, $run, $failures, and the functions below.
. "$SOURCE_DIR/tests/scratch.sh"
bin=$BUILD_DIR/perf
run="timeout -k 5 100"
unset WORLD_SIZE RANK
collectives="all_reduce all_gather reduce_scatter broadcast reduce gather scatter all_to_all sendrecv barrier"

# expect_rows CODE COMMAND...: as expect, with the table's rows in ./rows.
expect_rows()
{
	expect "$@"
	grep -v '^#' out >rows
}

# all_right N [N/A]: N rows of 13 columns, nothing wrong in any; given N/A, none is in place.
all_right()
{
	[ "$(wc -l <rows)" = "$1" ] || complain "$(wc -l <rows) rows instead of $1"
	awk -v in_place="${2:-0}" 'NF != 13 || $9 != "0" || $13 != in_place { bad = 1 } END { exit bad }' rows ||
		complain "a row is not right: $(cat rows)"
}

# in_place_of COLLECTIVE: what its column says when all is right.
in_place_of()
{
	case $1 in
	all_to_all | sendrecv | barrier | "${2:-}") echo N/A ;;
	*) echo 0 ;;
	esac
}

# rows_of COLLECTIVE N: N, or the one row of a barrier.
rows_of()
{
	[ "$1" = barrier ] && echo 1 || echo "$2"
}

# Percentiles that are there and ordered: min <= p50 <= p99 <= max.
ordered()
{
	awk 'NF != 21 { bad = 1 }
		{ for (i = 14; i <= 18; i += 4)
			if ($i != "N/A" && !($(i + 2) > 0 && $(i + 2) <= $i && $i <= $(i + 1) && $(i + 1) <= $(i + 3)))
				bad = 1 }
		END { exit bad || NR == 0 }' rows || complain "percentiles: $(cat rows)"
}

# json FILE EXPRESSION: what is true of the document d.
json()
{
	python3 - "$1" "$2" <<'END' || complain "$2: $(cat "$1")"
import json, sys
d = json.load(open(sys.argv[1]))
rows = d["rows"]
sys.exit(not eval(sys.argv[2]))
END
}

# refuses PROGRAM LINE...: --help is well; each line ends with 2 and where to find help; ranks that nobody meets with 3 and a message.
refuses()
{
	local program=$1 line
	shift
	expect 0 $run "$bin/$program" --help
	for line; do
		# shellcheck disable=SC2086
		expect 2 $run "$bin/$program" $line
		grep -q "^$program --help explains" err || complain "$line: no word of --help: $(cat err)"
	done
	expect 3 env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=9 TUTTI_TIMEOUT_MS=200 $run "$bin/$program" --rounds 1
	grep -q "^$program: " err || complain "no message: $(cat err)"
}
