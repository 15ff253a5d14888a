#!/usr/bin/env bash
# slow: 20 s
# no_asan: one thread that computes for long in plain arrays
# What would break: a trainer's flags in examples/gpt: the losses of its own options for the same thing, --test that
# trains, or says another loss than training goes on with, and --resume that begins anew.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
gpt=$PWD/gpt # a small one
tuttirun="timeout -k 5 120 $BUILD_DIR/launch/tuttirun"
unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_RESTARTED
cat /usr/share/common-licenses/GPL-3 >text
tail -c 17 text >sequence # which every batch repeats
cat >gpt <<END
#!/bin/bash
exec -a gpt "$BUILD_DIR/examples/gpt/gpt" --layers 2 --channels 16 --heads 2 --seq 16 "\$@"
END
chmod +x gpt

# trains LOSSES OPTION...: so many steps, on $run
run=
trains()
{
	# shellcheck disable=SC2086
	expect 0 $run "$gpt" --sample 0 --dump-loss "$1" "${@:2}"
}

# same FILE FILE: losses to the last digit
same()
{
	[ -s "$1" ] && cmp -s "$1" "$2" || complain "other losses in $2 than in $1: $(diff "$1" "$2" | head -4)"
}

# tested LOSS: what --test printed
tested()
{
	sed -n 's/^test: loss \([0-9.]*\) over .*/\1/p' out
}

# is_close A B: two losses
is_close()
{
	awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d < 1e-6 && d > -1e-6) }' ||
		complain "$3: loss $1 is not $2"
}

# wrong MESSAGE OPTION...
wrong()
{
	expect 2 "$gpt" "${@:2}"
	said "$1"
}

# ---- the same as gpt's own options
trains micro.loss --steps 6 --micro-batches 4 text
trains losses --steps 6 --accumulate 4 text
same micro.loss losses
trains losses --steps 6 --accumulate 4 --micro-batches 4 text
same micro.loss losses
trains plain.loss --steps 6 text
trains losses --steps 6 --precision 32 text
same plain.loss losses
trains losses --steps 6 --clip 1 text # gpt's own
same plain.loss losses
trains clipped.loss --steps 6 --clip 0.1 text
cmp -s plain.loss clipped.loss && complain "--clip changes nothing"
for pair in "bf16-mixed=--dtype bf16" "bf16=--dtype bf16 --reduce bf16" "16-mixed=--dtype f16 --loss-scale -1"; do
	# shellcheck disable=SC2086
	trains own.loss --steps 6 ${pair#*=} text
	trains losses --steps 6 --precision "${pair%%=*}" text
	same own.loss losses
	cmp -s plain.loss losses && complain "--precision ${pair%%=*} changes nothing"
done
echo '{"accumulate": 4, "precision": "bf16-mixed", "clip": 0.5}' >flags.json
trains losses --steps 6 --config flags.json --precision 32 --clip=1 text # the command line wins
same micro.loss losses

# ---- what does not go together, and slips of the finger
wrong "--strategy: 'zero3' is not .*: did you mean zero1\?" --strategy zero3 text
wrong 'There is no flag --stratgy: did you mean --strategy\?' --stratgy ddp text
wrong 'There is no flag --micro-bathces: did you mean --micro-batches\?' --micro-bathces=2 text
wrong '^gpt: --steps needs a value' --steps
wrong '--micro-batches 3 and --accumulate 2 differ' --accumulate 2 --micro-batches 3 text
wrong '--dtype is not possible with --precision bf16-mixed, which sets it' --precision bf16-mixed --dtype f32 text
wrong '--loss-scale is not possible with --precision' --loss-scale 2 --precision 32 text
wrong '--resume auto is not possible without --save' --resume auto text
wrong "--resume 'nowhere': there is no checkpoint" --resume nowhere text
wrong "--test 'nowhere': there is no checkpoint" --test nowhere text
wrong '--gpus is an option of gpt_cuda' -g 0 text

# ---- --resume
trains whole.loss --steps 12 text
trains losses --steps 12 --save saved --save-every 6 text
same whole.loss losses
tail -n 6 whole.loss >half.loss
trains losses --steps 12 --resume saved/step_00000006 text
same half.loss losses
mkdir again
cp -r saved/step_00000006 again
trains losses --steps 12 --resume auto --save again text
same half.loss losses
[ -d again/step_00000012 ] || complain "--resume auto does not save in --save"
trains losses --steps 12 --resume auto --save fresh text # nothing is there yet
same whole.loss losses
# Once the job has saved, it goes on from there and not from --resume again.
mkdir later
cp -r saved/step_00000012 later
trains losses --steps 13 --resume saved/step_00000006 --save later text
[ "$(cut -d ' ' -f 1 losses)" = 12 ] || complain "goes on before its own checkpoint: $(cat losses)"

# ---- --test: on one sequence it is the loss that training goes on with
trains losses --steps 8 --save one sequence
trains next.loss --steps 9 --resume one sequence
expect 0 "$gpt" --test one --dump-loss test.loss sequence
is_close "$(tested)" "$(cut -d ' ' -f 2 next.loss)" "--test and the next step"
[ "$(cut -d ' ' -f 1 test.loss)" = 8 ] || complain "--test names step $(cat test.loss)"
expect 0 "$gpt" --test saved text
whole=$(tested)
before=$(cat saved/*/COMMIT | cksum)
for what in "2 --strategy fsdp" "4 --strategy zero1 --batch 6" "3 --strategy ddp --accumulate 2" "4 --tp 2 --pp 2" \
	"4 --cp 2 --dp 2 --strategy fsdp" "4 --pp 2 --strategy zero2 --batch 3 --micro-batches 2" \
	"2 --ep 2 --experts 4 --test ex"; do
	read -r n options <<<"$what"
	from=saved
	if [ "${options%ex}" != "$options" ]; then
		trains losses --steps 3 --experts 4 --save ex text
		expect 0 "$gpt" --test ex --experts 4 text
		whole=$(tested) from=ex
	fi
	# Test mode wins over all that trains, saves or resumes.
	# shellcheck disable=SC2086
	expect 0 $tuttirun -n "$n" "$gpt" $options --test $from --resume nowhere --save untouched --export untouched --log untouched text
	is_close "$(tested)" "$whole" "--test on $what"
	[ "$(grep -c '^step' out)" = 0 ] || complain "--test trains: $(cat out)"
done
[ "$before" = "$(cat saved/*/COMMIT | cksum)" ] && [ ! -e untouched ] || complain "--test writes"
expect 0 "$gpt" --test saved/step_00000006/ text
said 'of the parameters after step 6$' out
# A text of other characters is refused, whether it has as many or not.
tr e '~' <text >swapped
for other in sequence swapped; do
	for flag in --test --resume --save; do
		"$gpt" $flag saved --steps 7 --sample 0 $other >out 2>err && complain "$flag takes $other"
		said "^gpt: $flag 'saved' (does not fit: .* the characters of this text, [0-9]+ different ones|was trained on text of other characters)"
	done
done
expect 2 $tuttirun -n 2 "$gpt" --test saved swapped
# ---- --devices: the ranks that it starts are those of tuttirun
for n in 1 2 4; do
	trains started.loss --steps 6 --devices $n text
	grep -q "the same to the bit on $n rank" out || complain "--devices $n: $(tail -1 out)"
	run="$tuttirun -n $n" trains losses --steps 6 text
	same started.loss losses
done
trains losses --steps 6 --ranks 4 --devices 4 --strategy fsdp text
grep -q 'the same to the bit on 4 ranks' out || complain "--ranks 4: $(tail -1 out)"
wrong '--ranks 2 and --devices 3 differ: give one of them' --ranks 2 --devices 3 text
wrong '--nodes 2 without a launcher needs NODE_RANK' --nodes 2 --devices 2 text
wrong 'rank . \(pid [0-9]*\) exited with code 2' --devices 2 nowhere
expect 1 $tuttirun -n 2 "$gpt" --devices 3 text
said '--devices 3: the launcher has started 2 ranks on the node of rank'
port
trains losses --steps 6 --devices 2 -p "$port" text
# Two nodes, of which each is told its number.
port
nodes=()
for node in 0 1; do
	NODE_RANK=$node MASTER_ADDR=127.0.0.1 TUTTI_SECRET=0123456789abcdef0123456789abcdef timeout -k 5 120 "$gpt" \
		--sample 0 --steps 6 --devices 2 --nodes 2 -p "$port" --dump-loss two.loss text >node$node 2>&1 &
	nodes+=($!)
done
for node in 0 1; do
	wait "${nodes[node]}" || complain "node $node: $(cat node$node)"
done
same started.loss two.loss
# GPUs, of the fake driver: as many ranks.
LD_LIBRARY_PATH=$BUILD_DIR/tests/cuda/driver FAKE_CUDA_DEVICES=4 expect 0 "$BUILD_DIR/examples/gpt_cuda/gpt_cuda" -g 1 0 \
	--matmul plain --steps 2 --batch 4 --seq 12 --channels 16 --heads 2 --sample 0 text
grep -q 'the same to the bit on 2 ranks' out || complain "-g 1 0: $(cat out)"

# ---- kill -9 in the middle: the job ends with it, and --resume auto goes on from the last checkpoint
trains whole.loss --steps 40 --devices 2 text
# killed WHOM: a rank, or all of it, once step 12 is done
killed()
{
	local job line code child
	rm -rf killed
	mkfifo lines
	timeout -k 5 120 "$gpt" --steps 40 --devices 2 --save killed --save-every 5 --report-every 1 --sample 0 text >lines 2>err &
	job=$!
	while read -r line; do
		case $line in
		"step   12 "*)
			read -r child <"/proc/$job/task/$job/children" # timeout's
			[ "$1" = rank ] && read -r child _ <"/proc/$child/task/$child/children"
			kill -9 "${child% }"
			;;
		esac
	done <lines
	wait $job
	code=$?
	rm lines
	[ $code = 137 ] || complain "kill -9 of $1: exit code $code: $(cat err)"
	[ "$1" = job ] || said 'rank . \(pid [0-9]*\) was killed by signal 9'
	[ -d killed/step_00000005 ] || complain "kill -9 of $1: no checkpoint: $(ls killed)"
	trains losses --steps 40 --devices 2 --save killed --resume auto text
	tail -n "$(wc -l <losses)" whole.loss >half.loss
	same half.loss losses
	[ "$(wc -l <losses)" -lt 40 ] || complain "kill -9 of $1: trained all again"
}
killed rank
killed job
exit $failures
