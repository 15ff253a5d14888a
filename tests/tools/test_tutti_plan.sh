#!/usr/bin/env bash
# slow: 9 s
# no_asan: one thread that computes for long in plain arrays
# What would break: tutti-plan's command line. What it prints of plans, its tables and
# drawings, its exit codes, and a full message for every line that it cannot do.
set -u
plan=$BUILD_DIR/tools/tutti-plan
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

# expect CODE PATTERN WORD...: the exit code, and a line that matches on stdout or stderr.
expect()
{
	local code=$1 pattern=$2 got
	shift 2
	"$plan" "$@" >"$scratch/out" 2>&1
	got=$?
	if [ $got != "$code" ] || ! grep -qE -- "$pattern" "$scratch/out"; then
		echo "tutti-plan $*: exit code $got, not $code, or no line like '$pattern':"
		sed 's/^/    /' "$scratch/out"
		failures=1
	fi
}

expect 0 '^usage: tutti-plan show' --help
expect 2 'not a value for --op: give sum, .* or bxor\.' explain all_reduce 8 --ranks 4 --op most
expect 2 'not a value for --dtype: give f32, .* or u64\.' explain all_reduce 8 --ranks 4 --dtype int
expect 2 'not a value for --alpha: give a time' explain all_reduce 8 --ranks 4 --alpha 3
expect 0 'rank 1 of 4: 13 steps on 3 lanes' show all_reduce ring 4 --rank 1
expect 0 '^ +7 +send OUT\[1\] to rank 2 +to 2 +6$' show all_reduce ring 4 --rank 1
expect 0 'rank 7 of 8' show all_reduce ring 8
expect 0 'scaled' show all_reduce ring 2 --scaled

expect 0 'all_reduce ring: 4 calls checked, nothing wrong|all_reduce ring: [0-9]+ calls' check all_reduce ring 8
expect 0 'all_reduce doubling: .* nothing wrong' check all_reduce 5
expect 0 'barrier doubling: .* nothing wrong' check all 1-6,9
expect 0 '^\*' explain all_reduce 1M --ranks 16 --nodes 4
printf 'here:tcp 1e-5 1e-5 1e-10 1e-5 1e-5 1e-10 1e-11 2\n' >"$scratch/links"
expect 0 '^\* star' explain all_reduce 1K --ranks 8 --links "$scratch/links"
expect 0 '^\* doubling' explain all_reduce 1K --ranks 2 --links "$scratch/links"
expect 0 'ranks share 2 cores' explain all_reduce 1K --ranks 8 --links "$scratch/links"
# Without --nodes the link is that inside of a node, the first of the file.
printf 'here:tcp 2e-5 1e-5 1e-9 4e-5 1e-5 2e-9 1e-11 2\n' >"$scratch/inside"
expect 0 '^alpha 20\.0 us .*beta 1000 MB/s' explain all_reduce 1K --ranks 8 --links "$scratch/inside"
expect 0 '^between nodes: alpha 40\.0 us .*beta 500 MB/s' explain all_reduce 1K --ranks 8 --nodes 2 --links "$scratch/inside"
# Beside other load a message of many may have taken longer than one alone.
echo 'ranks=8 2e-05 3e-05 1e-09 4e-05 5e-05 2e-09 1e-10 2' >"$scratch/noisy"
expect 0 '^alpha 20\.0 us \(overhead 20\.0 us\)' explain all_reduce 1K --ranks 8 --links "$scratch/noisy"
expect 0 'no: config.deterministic' explain all_reduce 1M --ranks 16 --nodes 4 --deterministic
expect 0 'no: direct exchange reduces at most 1024' explain all_reduce 1M --ranks 2000
expect 0 'TUTTI_ALGO=broadcast=ring' explain broadcast 1M --ranks 5

expect 0 '^ +512 ' simulate all_reduce 1M --ranks 512 --alpha 2us --beta 25GB/s
expect 0 '^ +1024 .*~' simulate all_reduce 1K --ranks 1024 --effort 0.001
expect 0 'of 2048 ranks: direct exchange' simulate all_reduce 8 --ranks 2048
expect 0 '^ +16 ' simulate all_reduce 1M --ranks 16 --nodes 4 --local-alpha 500ns
# Memory: a ring's plan grows as the ranks do, a doubling's by a step or two a round.
expect 0 '^memory of the plan of rank 0' simulate all_reduce 8 --ranks 512 --effort 0.01
awk '/^memory of/ { seen = 1 }
	seen && $1 == "ranks" { named = $2 == "ring" && $3 == "doubling" }
	seen && $1 == 64 && $3 == "KiB" && $5 == "KiB" { ring = $2; doubling = $4 }
	seen && $1 == 512 && $3 == "KiB" && $5 == "KiB" { good = $2 > 7 * ring && $2 < 9 * ring && $4 > doubling && $4 < 2 * doubling }
	END { exit !(named && good) }' "$scratch/out" || {
	echo "the plans' memory:"
	cat "$scratch/out"
	failures=1
}
expect 0 '^barrier, predicted' simulate barrier 0 --ranks 4

# Pipelines: one action a column, the costs, and a drawing with a box for each action.
expect 0 '^rank 0 F0 F1 F2 F3 \.  \.  \.  \.  \.  \.  B0 =  F4 B1 =  F5 B2 =  F6 B3 =  F7 B4' \
	pipeline 1f1b --stages 4 --micro-batches 8
expect 0 '^rank 3 \.  \.  \.  F0 B0 =  F1 B1 =  F2' pipeline 1f1b --stages 4 --micro-batches 8
expect 0 '^ +1 +24 +27.3% +3 +16 +4 and 2$' pipeline 1f1b --stages 4 --micro-batches 8
expect 0 '^A step takes 33; the bubble is 27.3% of it. The formula says 33\.$' \
	pipeline 1f1b --stages 4 --micro-batches 8
expect 0 '^ +0 +24 +27.3% +8 ' pipeline gpipe --stages 4 --micro-batches 8
expect 0 'takes 27; the bubble is 11.1%' pipeline zero_bubble --stages 4 --micro-batches 8
expect 0 'takes 51; the bubble is 5.9%' pipeline zero_bubble --stages 4 --micro-batches 8 --chunks 2
expect 0 'takes 57; the bubble is 15.8%' pipeline interleaved --stages 4 --micro-batches 8 --chunks 2
expect 0 'There is no formula' pipeline interleaved --stages 4 --micro-batches 9 --chunks 2
expect 0 '^F forward, .*, in order$' pipeline 1f1b --stages 4 --micro-batches 8 --times 1,1.5,1
expect 0 'takes 49; the bubble is 51.0% of it\.$' pipeline 1f1b --stages 4 --micro-batches 8 --times 1,1,1,1
expect 0 'at a time, of a chunk' pipeline zero_bubble --stages 3 --micro-batches 7 --chunks 2 --svg "$scratch/c.svg"
grep -q '</svg>' "$scratch/c.svg" && [ "$(grep -c 'fill-opacity' "$scratch/c.svg")" = $((3 * 7 * 2 * 3)) ] \
	&& grep -q '>backward, weights<' "$scratch/c.svg" && grep -q 'rank 2' "$scratch/c.svg" || {
	echo "the drawing of a pipeline lacks boxes, a legend or a rank"
	failures=1
}
expect 1 'could not be written' pipeline gpipe --stages 2 --micro-batches 2 --svg "$scratch/no/such/folder.svg"

# What cannot be done: exit code 2 and a message.
refused()
{
	expect 2 '^tutti-plan --help explains the options\.$' "$@"
}
refused
refused dance
refused show
refused show all_reduce
refused show all_reduce ring
refused show all_reduce ring eight
refused show all_reduce ring 8 9
refused show all_reduce ring 8 --rank 8
refused show all_reduce window 8
refused show all_reduce triangle 8
refused show all_produce ring 8
refused show all_reduce ring 0
refused show all_reduce ring 70000
refused show all_reduce ring 8 --root 8
refused show all_reduce ring 8 --nodes 3
refused show all_reduce ring 8 --colour
refused check all_reduce ring 8-4
refused check all_reduce ring 5000
refused explain all_reduce 1M
refused explain all_reduce big --ranks 4
refused explain all_reduce 1M --ranks 4 --op band
refused explain all_reduce 1M --ranks 4 --dtype float
refused simulate all_reduce 1M --ranks 16-32
refused simulate all_reduce 1M --ranks 16 --alpha 2
refused simulate all_reduce 1M --ranks 16 --beta 25GB
refused simulate all_reduce 1M --ranks 16 --alpha 1us --overhead 2us
refused simulate all_reduce 1M --ranks 16 --effort none
refused simulate all 1M --ranks 16
refused pipeline
refused pipeline 2f2b --stages 2 --micro-batches 4
refused pipeline 1f1b
refused pipeline 1f1b --stages 2
refused pipeline 1f1b --micro-batches 4
refused pipeline 1f1b --stages 0 --micro-batches 4
refused pipeline 1f1b 4 --stages 2 --micro-batches 4
refused pipeline 1f1b --stages 2 --micro-batches 4 --chunks 2
refused pipeline 1f1b --stages 2 --micro-batches 4 --times 1,1
refused pipeline 1f1b --stages 2 --micro-batches 4 --times 1,1,1,1,1
refused pipeline 1f1b --stages 2 --micro-batches 4 --times 0,0,0
refused pipeline interleaved --stages 4096 --micro-batches 4096 --chunks 4096
refused pipeline 1f1b --stages 4096 --micro-batches 4096

exit $failures
