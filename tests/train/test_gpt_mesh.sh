#!/usr/bin/env bash
# slow: 45 s
# no_asan: one thread that computes for long in plain arrays
# What would break: tensor and pipeline parallelism that change losses, checkpoints that load on one mesh only, and options that do
# not go together.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
gpt=$BUILD_DIR/examples/gpt/gpt
tuttirun="timeout -k 5 200 $BUILD_DIR/launch/tuttirun"
cat /usr/share/common-licenses/GPL-3 >text

# train NAME RANKS OPTIONS...: losses into NAME.loss, what is said into NAME.out
train()
{
	local name=$1 ranks=$2
	shift 2
	$tuttirun -n "$ranks" "$gpt" --layers 4 --channels 16 --seq 32 --steps 100 --sample 0 --dump-loss "$name.loss" "$@" text \
		>"$name.out" 2>&1 || complain "$name failed: $(cat "$name.out")"
}

# near NAME ONE: as one rank's in ONE.loss, in every step
near()
{
	paste "$2.loss" "$1.loss" | awk -v name="$1" '
		NF == 4 && $1 == $3 && $2 > 0 && $2 - $4 < 2e-5 && $4 - $2 < 2e-5 { good++; next }
		{ wrong = "; not " $0 }
		END { if (good != 100 || wrong) { print name ": " good + 0 " of 100 losses" wrong; exit 1 } }' || failures=1
}

# all ONE OPTIONS: the meshes of standard input, as one rank that trains with these options. Those after a + are for
# script/soak.
all()
{
	local one=$1 mesh
	shift
	train "$one" 1 "$@"
	while read -r mesh; do
		[ "${mesh#+ }" = "$mesh" ] || [ "${GPT_WHOLE:-}" ] || continue
		mesh=${mesh#+ }
		# shellcheck disable=SC2086
		train "$one on $mesh" $mesh "$@"
		near "$one on $mesh" "$one"
	done
}

# ---- every mesh has the losses of one rank
all dense <<-'end'
	2 --tp 2
	+ 3 --tp 1
	+ 4 --tp 4 --recompute
	+ 4 --tp 2 --strategy zero1
	+ 4 --tp 2 --dp 2 --strategy fsdp
	8 --tp 2 --strategy hsdp --shard-size 2
	+ 8 --tp 4 --strategy zero2 --micro-batches 2
	+ 2 --cp 2
	+ 4 --cp 4
	+ 4 --cp 2 --tp 2
	+ 4 --cp 2 --strategy fsdp
	+ 8 --cp 4 --tp 2 --recompute
	8 --cp 2 --tp 2 --strategy zero2
	2 --pp 2 --micro-batches 4
	+ 2 --pp 2 --schedule gpipe --micro-batches 3
	+ 4 --pp 4 --micro-batches 8 --recompute
	2 --pp 2 --schedule interleaved --chunks 2 --micro-batches 4
	+ 4 --pp 2 --tp 2 --micro-batches 2
	+ 4 --pp 2 --schedule zero_bubble --strategy zero1 --micro-batches 2
	4 --pp 2 --tp 2 --schedule zero_bubble --chunks 2 --micro-batches 4
	+ 6 --pp 2 --strategy zero2 --micro-batches 2
	8 --dp 2 --tp 2 --pp 2 --strategy fsdp --micro-batches 2
	+ 8 --pp 2 --tp 2 --schedule interleaved --chunks 2
	+ 8 --pp 2 --cp 2 --tp 2 --schedule zero_bubble --micro-batches 4
	8 --pp 4 --cp 2 --schedule gpipe --micro-batches 4
end

# ---- with experts: the choices of a token are the same wherever it is
all mixture --experts 4 <<-'end'
	+ 2 --strategy zero2
	+ 2 --ep 2
	+ 4 --ep 4 --recompute
	4 --ep 2 --tp 2
	+ 4 --ep 2 --dp 2 --strategy fsdp
	+ 8 --ep 2 --tp 2 --cp 2
	4 --ep 2 --pp 2 --schedule zero_bubble --micro-batches 2
end

# ---- ranks of ep whose sequences are not as many, or none
all few --experts 4 --batch 3 <<-'end'
	+ 2 --ep 2
	4 --ep 4
	4 --ep 2 --pp 2 --micro-batches 3
end
train unbalanced 1 --experts 4 --expert-balance 0
cmp -s unbalanced.loss mixture.loss && complain "the load-balance loss changes nothing"

# ---- deterministic = 2: one set of bits for all numbers of replicas, stages and chunks, and all schedules
bits()
{
	local mesh
	while read -r mesh; do
		# shellcheck disable=SC2086
		train bits $mesh --deterministic 2 --steps 20
		sed -n 's/.*fingerprint //p' bits.out
	done | sort | uniq -c
}
[ "$(bits <<-'end' | awk '{ print $1, NF }'
	4 --pp 4 --micro-batches 8 --schedule gpipe
	4 --pp 2 --micro-batches 4 --schedule interleaved --chunks 2 --strategy fsdp
	8 --pp 2 --micro-batches 2 --schedule zero_bubble --strategy zero2
end
)" = "3 2" ] || complain "stages change the bits"
[ "$(bits <<-'end' | awk '{ print $1, NF }'
	1 --micro-batches 8 --tp 1
	2 --micro-batches 4
	8 --micro-batches 1 --strategy fsdp
end
)" = "3 2" ] || complain "replicas change the bits"

# ---- a checkpoint of one mesh goes on at others
train first 4 --tp 2 --strategy zero2 --save saved --save-every 50
rm -r saved/step_*100
for mesh in "1 --tp 1" "4 --cp 2 --tp 2" "4 --pp 2 --tp 2 --micro-batches 2"; do
	rm -rf here && cp -r saved here
	# shellcheck disable=SC2086
	train "from 4 to $mesh" $mesh --save here --save-every 999
	{ head -50 first.loss; cat "from 4 to $mesh.loss"; } >joined.loss
	near joined dense
done

# ---- what it writes is of the same model
written()
{
	local ranks=$1
	shift
	$tuttirun -n "$ranks" "$gpt" "$@" --steps 30 --sample 60 text 2>&1 | sed '1,/writes now/d; /^parameters/d'
}
written 1 >alone
grep -q . alone || complain "it writes nothing"
written 2 --tp 2 | cmp -s alone || complain "with --tp 2 it writes something else"
written 4 --cp 2 --tp 2 | cmp -s alone || complain "with --cp 2 --tp 2 it writes something else"
written 8 --pp 2 --cp 2 --tp 2 --strategy fsdp | cmp -s alone || complain "with --pp 2 --cp 2 --tp 2 it writes something else"

# ---- misuse
refused()
{
	local why=$1
	shift
	expect 2 $gpt "$@"
	grep -q "gpt: $why" err || complain "$*: $(head -1 err)"
}
refused '4 heads cannot be divided by --tp 3' --tp 3
refused '64 characters (--seq) cannot be divided by twice --cp, 6' --cp 3
refused '4 experts cannot be divided by --ep 3' --ep 3 --experts 4
refused '4 neighbouring tokens of a rank cannot be divided by --expert-group 8' --cp 4 --tp 4 --experts 4
refused '--ep 2 is not possible: there are no --experts' --ep 2
refused '--dp 2 is not possible' --dp 2
refused '--pp 3 is not possible' --pp 3
refused '--recompute is not possible with zero_bubble' --pp 2 --schedule zero_bubble --recompute
expect 1 $tuttirun -n 3 "$gpt" --tp 2 text
grep -q "leaves no size for 'dp': 3 ranks are no multiple of 2" err || complain "$(cat err)"
exit $failures
