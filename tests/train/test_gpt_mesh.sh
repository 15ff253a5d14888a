#!/usr/bin/env bash
# slow: 45 s
# no_asan: one thread that computes for long in plain arrays
# What would break: tensor and pipeline parallelism that change losses, checkpoints that load on one mesh only, and options that do
# not go together.
set -u
gpt=$BUILD_DIR/examples/gpt/gpt
tuttirun="timeout -k 5 200 $BUILD_DIR/launch/tuttirun"
. "$SOURCE_DIR/tests/scratch.sh"
cat /usr/share/common-licenses/GPL-3 >text

# train NAME RANKS OPTIONS...: losses into NAME.loss, what is said into NAME.out
train()
{
	local name=$1 ranks=$2
	shift 2
	$tuttirun -n "$ranks" "$gpt" --layers 4 --channels 32 --steps 30 --sample 0 --dump-loss "$name.loss" "$@" text >"$name.out" 2>&1 ||
		complain "$name failed: $(cat "$name.out")"
}

# near NAME: as one rank's, in every step
near()
{
	paste one.loss "$1.loss" | awk -v name="$1" '
		NF == 4 && $1 == $3 && $2 > 0 && $2 - $4 < 2e-5 && $4 - $2 < 2e-5 { good++; next }
		{ wrong = "; not " $0 }
		END { if (good != 30 || wrong) { print name ": " good + 0 " of 30 losses" wrong; exit 1 } }' || failures=1
}

train one 1
for mesh in "2 --tp 2" "3 --tp 1" "4 --tp 4" "4 --tp 2 --strategy zero1" "4 --tp 2 --dp 2 --strategy fsdp" \
	"4 --tp 2 --strategy zero2 --micro-batches 2" "8 --tp 2 --strategy hsdp --shard-size 2" "8 --tp 4 --strategy fsdp" \
	"2 --pp 2 --micro-batches 4" "2 --pp 2 --schedule gpipe --micro-batches 3" "4 --pp 4 --micro-batches 8" \
	"2 --pp 2 --schedule interleaved --chunks 2 --micro-batches 4" "4 --pp 2 --tp 2 --micro-batches 2" \
	"4 --pp 2 --strategy zero1 --micro-batches 2" "6 --pp 2 --strategy zero2 --micro-batches 2" \
	"8 --dp 2 --tp 2 --pp 2 --strategy fsdp --micro-batches 2" "8 --pp 2 --tp 2 --schedule interleaved --chunks 2"; do
	# shellcheck disable=SC2086
	train "mesh of $mesh" $mesh
	near "mesh of $mesh"
done

# ---- a checkpoint of one mesh goes on at others
train first 4 --tp 2 --strategy zero2 --save saved --save-every 15
rm -r saved/step_*30
for mesh in "1 --tp 1" "4 --tp 4" "3 --strategy fsdp" "4 --pp 2 --tp 2 --micro-batches 2"; do
	rm -rf here && cp -r saved here
	# shellcheck disable=SC2086
	train "from 4 to $mesh" $mesh --save here --save-every 99
	{ head -15 first.loss; cat "from 4 to $mesh.loss"; } >joined.loss
	near joined
done

# ---- what it writes is of the same model
for ranks in 1 2; do
	$tuttirun -n $ranks "$gpt" --tp $ranks --steps 30 --sample 60 text 2>&1 | sed '1,/writes now/d; /^parameters/d' >"text of $ranks"
done
cmp -s "text of 1" "text of 2" || complain "it writes something else: $(cat text\ of*)"
grep -q . "text of 1" || complain "it writes nothing"

# ---- misuse
expect 2 $gpt --tp 3
grep -q 'a number of heads that it does not divide' err || complain "$(cat err)"
expect 2 $gpt --dp 2
grep -q 'without --tp or --pp' err || complain "$(cat err)"
expect 2 $gpt --pp 3
grep -q 'with fewer layers than stages' err || complain "$(cat err)"
expect 1 $tuttirun -n 3 "$gpt" --tp 2 text
grep -q "leaves no size for 'dp': 3 ranks are no multiple of 2" err || complain "$(cat err)"
exit $failures
