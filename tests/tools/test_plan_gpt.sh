#!/usr/bin/env bash
# slow: 6 s
# What would break: the planner's memory would not be the trainer's. examples/gpt starts on a mesh within exactly the bytes
# that tutti-plan layout says, and not within one byte less.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
plan=$BUILD_DIR/tools/tutti-plan gpt=$BUILD_DIR/examples/gpt/gpt run="timeout -k 5 100 $BUILD_DIR/launch/tuttirun"
failures=0
sizes="--layers 4 --heads 4 --channels 32 --seq 16"
vocab=$("$gpt" $sizes --steps 0 --sample 0 | sed -n 's/.*, \([0-9]*\) different ones$/\1/p')
[ -n "$vocab" ] || {
	echo "gpt does not say how many different characters there are"
	exit 1
}

# column NAME: of the first row of rows.csv that has the values of $want.
column()
{
	awk -F, -v name="$1" -v want="$want" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; n = split(want, w, " ") }
		NR > 1 { good = 1
			for (i = 1; i <= n; i++) { split(w[i], pair, "="); good = good && $at[pair[1]] == pair[2] }
			if (good) { print $at[name]; exit } }' rows.csv
}

# same RANKS DP PP TP STRATEGY SCHEDULE CHUNKS DTYPE
same()
{
	local ranks=$1 dp=$2 pp=$3 tp=$4 strategy=$5 schedule=$6 chunks=$7 dtype=$8 bytes
	local line="-n $ranks $gpt $sizes --dp $dp --pp $pp --tp $tp --strategy $strategy --schedule $schedule --chunks $chunks
		--micro-batches 4 --batch 8 --dtype $dtype --steps 1 --sample 0"
	"$plan" layout --model layers=4,heads=4,channels=32,vocab="$vocab",length=16 --ranks "$ranks" --batch 8 --micro-batches 4 \
		--flops 1G --dtype "$dtype" --top 100000 --csv rows.csv >out || cat out
	want="dp=$dp pp=$pp tp=$tp cp=1 strategy=$strategy chunks=$chunks recomputes=0"
	[ "$pp" = 1 ] || want+=" schedule=$schedule"
	bytes=$(column trainer_bytes)
	[ -n "$bytes" ] || {
		echo "$want: no such row"
		failures=1
		return
	}
	$run $line --memory-limit "$bytes" >out 2>&1 || {
		echo "$want $dtype: gpt does not start within $bytes B:"
		grep needs out
		failures=1
	}
	$run $line --memory-limit $((bytes - 1)) >out 2>&1 && {
		echo "$want $dtype: gpt starts within one less than $bytes B"
		failures=1
	}
	grep -q "This model needs" out || {
		echo "$want $dtype: gpt ended for another reason:"
		cat out
		failures=1
	}
}

same 1 1 1 1 ddp 1f1b 1 f32
same 2 1 1 2 ddp 1f1b 1 f32
same 2 2 1 1 zero2 1f1b 1 f32
same 4 2 1 2 zero1 1f1b 1 bf16
same 4 2 2 1 fsdp 1f1b 1 f32
same 4 1 2 2 ddp interleaved 2 f32
same 4 2 2 1 zero1 gpipe 1 f32
same 4 2 2 1 zero2 1f1b 1 f32
same 4 2 2 1 fsdp interleaved 2 f32
same 4 2 2 1 fsdp zero_bubble 1 f32
exit $failures
