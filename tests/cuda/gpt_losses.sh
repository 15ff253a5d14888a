#!/usr/bin/env bash
# gpt_losses.sh BUILD LIMIT HOW RANKS OPTION...: trains examples/gpt on the CPU and examples/gpt_cuda with --matmul HOW, both on so
# many ranks with these options, for 20 steps, and compares losses and norms of gradients of every step: they may differ by LIMIT,
# norms by that part of them. What both wrote is in ./gpt.txt and ./gpt_cuda.txt. Exit codes: 0; 1; 77 there is no cuBLAS.
set -u
build=$1 limit=$2 how=$3 ranks=$4 steps=20 text=$(dirname "$(readlink -f "$0")")/../../docs
shift 4

# where PROGRAM: built below examples, or packed into one folder.
where()
{
	ls "$build/examples/$1/$1" "$build/$1" 2>/dev/null | head -1
}

# train PROGRAM OPTION...: in PROGRAM.csv and PROGRAM.txt
train()
{
	rm -rf "$1.log"
	"$build/launch/tuttirun" -n "$ranks" "$(where "$1")" --steps $steps --log "$1.log" "${@:2}" "$text" >"$1.txt" 2>&1 || {
		cat "$1.txt"
		grep -q '^gpt_cuda: no cuBLAS' "$1.txt" && exit 77
		exit 1
	}
	grep -q "parameters are the same to the bit on $ranks rank" "$1.txt" || {
		cat "$1.txt"
		exit 1
	}
}

train gpt "$@"
train gpt_cuda --matmul "$how" "$@"
# Columns are step, time, loss, norm, rate. Numbers are compared as text first: a NaN is near nothing.
paste -d , gpt.log/metrics.csv gpt_cuda.log/metrics.csv | awk -F , -v steps=$steps -v limit="$limit" '
	function number(x) { return x ~ /^[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?$/ }
	function far(a, b) { return a > b ? a - b : b - a }
	NR == 1 { next }
	!(number($3) && number($4) && number($8) && number($9) && $4 > 0 && $1 == $6) { print "no numbers: " $0; next }
	far($3, $8) > loss { loss = far($3, $8) }
	far($4, $9) / $4 > norm { norm = far($4, $9) / $4 }
	{ rows++ }
	END {
		print "losses differ by " loss + 0 ", norms by " norm + 0 " of them, in " rows + 0 " steps"
		exit !(rows == steps && loss <= limit && norm <= limit)
	}'
