#!/usr/bin/env bash
# slow: 21 s
# no_asan: one thread that computes for long in plain arrays
# What would break: a loss that depends on the number of ranks, replicas that differ in a bit, and bad
# input that is accepted or has a bad message.
set -eu
gpt=$BUILD_DIR/examples/gpt/gpt
tuttirun=$BUILD_DIR/launch/tuttirun
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
failures=0
# 200 steps are the promise, which script/soak keeps (GPT_WHOLE); fewer steps run the same code.
steps=${GPT_WHOLE:+200} learned=1.5
steps=${steps:-60}
if grep -q '^CMAKE_C_FLAGS:.*-fsanitize' "$BUILD_DIR/CMakeCache.txt"; then
	steps=30 learned=0.5
fi

# A text that every Debian has.
cat /usr/share/common-licenses/* >text

# Numbers are compared as text first: for mawk a NaN equals everything, and a word is 0.
functions='function number(x) { return x ~ /^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$/ && x + 0 < 1e30 && x + 0 > -1e30 }
	function far(a, b) { return a > b ? a - b : b - a }'

# are_near FILE FILE LIMIT [ROWS]: losses of the same steps; the second file has all of the first's, or so many
are_near()
{
	awk -v limit="$3" -v wanted="${4:-0}" "$functions"'
		function good() {
			return NF == 2 && number($1) && number($2) && !seen[$1]++ && ($1 in of) && number(of[$1]) &&
				far($2, of[$1]) <= limit
		}
		FNR == 1 { file++ }
		file == 1 { of[$1] = $2; all++; next }
		good() { rows++; next }
		{ wrong = "; " $0 " is not " of[$1] }
		END {
			if (!wanted) wanted = all
			if (rows && rows == wanted && !wrong) exit 0
			print "losses: " rows + 0 " of " wanted + 0 " steps are near" wrong
			exit 1
		}' "$1" "$2"
}

near()
{
	are_near "$@" || failures=1
}

# are_same_metrics FILE FILE STEPS: of metrics.csv. Columns are step, time, loss, norm of the gradients, rate.
are_same_metrics()
{
	paste -d , "$1" "$2" | awk -F , -v steps="$3" "$functions"'
		function good() {
			return NF == 10 && number($1) && number($3) && number($4) && number($8) && number($9) && $1 == $6 &&
				!seen[$1]++ && $3 > 0 && $4 > 0 && far($3, $8) <= 2e-5 && far($4, $9) / $4 <= 1e-5
		}
		NR == 1 { next }
		!good() { wrong = "; not " $0; next }
		{ rows++ }
		far($3, $8) > loss { loss = far($3, $8) }
		far($4, $9) / $4 > norm { norm = far($4, $9) / $4 }
		END {
			print "losses differ by " loss + 0 ", norms by " norm + 0 " of them, in " rows + 0 " steps" wrong
			exit !(rows == steps && !wrong)
		}'
}

# verdict WANTED COMMAND...: fails unless the comparison gives this result.
verdict()
{
	local got=right
	"${@:2}" >verdict.txt || got=wrong
	[ "$got" = "$1" ] || {
		echo "'${*:2}' found $got what is $1: $(cat verdict.txt), of $(tail -n 1 "$3") and $(tail -n 1 "$4")"
		failures=1
	}
}

# with_last FILE ROW: with that row, or none, in the last one's place
with_last()
{
	head -n -1 "$1"
	[ -z "$2" ] || echo "$2"
}

# The comparisons themselves, on a last row that must not pass, in either file or in both.
test_comparisons()
{
	local row
	printf '%s\n' '1 2.5' '2 2.25' '3 2' >good
	for row in '3 nan' '3 -nan' '3 inf' '3 -inf' '3 1e999' '3 two' '3' '3 2 2' 'nan 2' '2 2.25'; do
		with_last good "$row" >bad
		verdict wrong are_near bad bad 2e-5
	done
	for row in '3 nan' '3 -nan' '3 inf' '3 -inf' '3 1e999' '3 two' '3' '' '2 2.25' '4 2' '3 2.1' '3 1.9'; do
		with_last good "$row" >bad
		verdict wrong are_near good bad 2e-5
		verdict wrong are_near bad good 2e-5
	done
	verdict wrong are_near good /dev/null 2e-5
	verdict wrong are_near /dev/null good 2e-5
	verdict wrong are_near /dev/null /dev/null 2e-5
	with_last good '3 2.00001' >last
	verdict right are_near good last 2e-5
	tail -n 1 good >last
	verdict right are_near good last 2e-5 1
	verdict wrong are_near good good 2e-5 1

	printf '%s\n' 'step,time,loss,norm,rate' '1,9,2.5,3,0.1' '2,9,2.25,2,0.1' '3,9,2,1,0.1' >good
	for row in 3,9,nan,1,0.1 3,9,2,nan,0.1 3,9,2,-nan,0.1 3,9,inf,1,0.1 3,9,2,inf,0.1 3,9,two,1,0.1 3,9,2,,0.1 3,9,2 \
		'' 2,9,2.25,2,0.1; do
		with_last good "$row" >bad
		verdict wrong are_same_metrics good bad 3
		verdict wrong are_same_metrics bad good 3
		verdict wrong are_same_metrics bad bad 3
	done
	for row in 3,9,2.1,1,0.1 3,9,1.9,1,0.1 3,9,2,1.1,0.1 3,9,2,0.9,0.1 4,9,2,1,0.1; do
		with_last good "$row" >bad
		verdict wrong are_same_metrics good bad 3
		verdict wrong are_same_metrics bad good 3
	done
	with_last good 3,8,2.00001,1.000001,0.2 >last
	verdict right are_same_metrics good last 3
	verdict wrong are_same_metrics good last 2
}

# alone: the run that all others are compared with, in 1.csv and 1.loss. The other runs write no sample: a forward of all
# ranks for each character would take most of the time.
alone()
{
	rm -rf log
	"$gpt" --steps "$steps" --dump-loss 1.loss --log log text >1.txt
	mv log/metrics.csv 1.csv
}

# A strategy on so many ranks: the same batches, so the same learning rates need the same number of steps.
same_losses()
{
	local n=$1 strategy=$2
	rm -rf log
	"$tuttirun" -n "$n" "$gpt" --sample 0 --steps "$steps" --strategy "$strategy" "${@:3}" --log log text >"$n.txt"
	echo -n "$n ranks, $strategy: "
	are_same_metrics 1.csv log/metrics.csv "$steps" || failures=1
	grep -q "parameters are the same to the bit on $n ranks, fingerprint" "$n.txt" || failures=1
}

test_comparisons
alone
grep -q 'fingerprint [0-9a-f]' 1.txt
awk -v steps="$steps" -v learned="$learned" "$functions"'NR == 1 { first = $2 } { last = $2 }
	END { exit !(NR == steps && number(first) && number(last) && last < first - learned) }' 1.loss || {
	echo "$steps steps learned nothing"
	failures=1
}
same_losses 4 fsdp
steps=30
alone
same_losses 2 ddp
same_losses 2 zero1
same_losses 3 zero2
same_losses 2 fsdp --sample 20 # all ranks gather for each character
same_losses 4 hsdp --shard-size 2
if [ -n "${GPT_WHOLE:-}" ]; then # script/soak: every strategy, for as long as is promised
	steps=200
	alone
	for n in 2 4 8; do
		for strategy in ddp zero1 zero2 fsdp; do
			same_losses "$n" "$strategy"
		done
		same_losses "$n" hsdp --shard-size 2
	done
	tail -1 1.loss >end.loss
	for dtype in bf16 f16; do
		"$tuttirun" -n 2 "$gpt" --steps "$steps" --strategy fsdp --dtype "$dtype" --loss-scale -1 --dump-loss low.loss text >/dev/null
		tail -1 low.loss >low_end.loss
		near end.loss low_end.loss 2e-2 1
	done
fi

# fingerprint RANKS OPTION...: of ten steps
fingerprint()
{
	"$tuttirun" -n "$1" "$gpt" --sample 0 --steps 10 "${@:2}" text | grep -o 'fingerprint [0-9a-f]*'
}

# With deterministic = 2 and one sequence in a micro-batch: the same bits at every number of ranks and strategy.
one=$(fingerprint 1 --deterministic 2 --micro-batches 8)
for what in "2 ddp" "4 zero1" "4 zero2" "8 fsdp"; do
	read -r n strategy <<<"$what"
	other=$(fingerprint "$n" --deterministic 2 --micro-batches $((8 / n)) --strategy "$strategy")
	[ -n "$one" ] && [ "$other" = "$one" ] || {
		echo "deterministic = 2 with $strategy on $n ranks: '$other', not '$one'"
		failures=1
	}
done

# Saved by FSDP on four ranks, continued by DDP on others; of 16 bits by FSDP, with losses scaled for f16.
steps=24
"$gpt" --sample 0 --steps $steps --dump-loss whole.loss text >/dev/null
"$tuttirun" -n 4 "$gpt" --sample 0 --steps $steps --strategy fsdp --save saved --save-every 12 --log logged \
	--export all.safetensors --dump-loss saved.loss text >/dev/null
near whole.loss saved.loss 2e-5 $steps
[ "$(tail -n +2 logged/metrics.csv | wc -l)" = $steps ] || failures=1
[ -d saved/step_00000024 ] && [ -s all.safetensors ] || failures=1
for n in 1 3 ${GPT_WHOLE:+2 8}; do
	rm -rf again
	mkdir again
	cp -r saved/step_00000012 again/
	"$tuttirun" -n $n "$gpt" --sample 0 --steps $steps --save again --dump-loss again.loss text >/dev/null
	near whole.loss again.loss 2e-5 12
done
low()
{
	"$tuttirun" -n 2 "$gpt" --sample 0 --steps $steps --strategy fsdp "$@" --dump-loss low.loss text >low.txt
}
low --dtype bf16 --reduce bf16
near whole.loss low.loss 2e-2 $steps
low --dtype f16 --reduce f16 --loss-scale -1
near whole.loss low.loss 2e-2 $steps
# All ranks skip a step that does not fit f16, with a message.
steps=2
low --dtype f16 --reduce f16 --loss-scale 1e9
grep -q 'Step 2 was skipped on all ranks: the gradient of parameter' low.txt || {
	echo "a loss scale of 1e9 fits f16: $(cat low.txt)"
	failures=1
}

# refused STATUS MESSAGE ARGUMENT...
refused()
{
	local status=0
	"$gpt" "${@:3}" >out 2>&1 || status=$?
	if [ "$status" != "$1" ] || ! grep -q -- "$2" out; then
		echo "gpt ${*:3}: status $status and '$(cat out)'; expected $1 and '$2'"
		failures=1
	fi
}
echo "too short" >short
refused 2 'cannot read nowhere: No such file' nowhere
refused 2 'cannot read nowhere: No such file' text nowhere
refused 2 'the text has 10 bytes, too few' short
refused 2 '--steps x is not possible' --steps x text
refused 2 "--strategy: 'what' is not ddp, zero1, " --strategy what text
refused 2 '--dtype f64 is not possible' --dtype f64 text
refused 1 'reduce_dtype 2 is neither' --dtype bf16 --reduce f16 text
refused 2 'There is no flag --what; the flags are ' --what text
refused 2 'gpt --help has all options' --what text
refused 2 'There is no flag --stpes: did you mean --steps?' --stpes 3 text
refused 2 'cannot write' --dump-loss /nowhere/loss text
refused 0 'usage' --help
refused 2 '64 channels cannot be divided by --heads 3' --heads 3 text
refused 1 'needs 1,7[0-9,]* B: 4[0-9,]* parameters + 4[0-9,]* gradients + 8' --memory-limit 1000 text
refused 1 "Making the file of offload_dir '/nowhere/tutti_state_.* failed: No such file" --offload /nowhere text
# 2 to the power of 32 weights of attention, which were 0 of them.
refused 1 '3 sequences of 4096 characters .* 3221225472 numbers' --batch 3 --seq 4096 --heads 64 --channels 64 --layers 1 \
	--steps 1 text
# More micro-batches than there is an int for, times sequences.
tiny="--sample 0 --steps 1 --seq 1 --layers 1 --heads 1 --channels 1"
# shellcheck disable=SC2086
refused 0 'parameters are the same to the bit' $tiny --batch 65536 --micro-batches 40000 text
# Local SGD ends with an average, and saves after one. Options that prevent that fail before the first step.
local="--strategy local_sgd --local-steps 10"
# shellcheck disable=SC2086
{
	refused 2 '--steps 25 is not possible with .*--local-steps 10.* 30 is the next multiple' $local --steps 25 text
	refused 2 '--steps 9 is not possible with .* 10 is the next' $local --steps 9 text
	refused 2 '--save-every 15 is not possible with .* 20 is the next' $local --steps 30 --save nowhere --save-every 15 text
}
[ ! -e nowhere ] || failures=1
# These options are allowed: there is no save, or only the last one.
"$tuttirun" -n 2 "$gpt" --sample 0 --strategy local_sgd --local-steps 3 --steps 6 --save-every 4 --export local.safetensors text \
	>local.txt
"$tuttirun" -n 2 "$gpt" --sample 0 --strategy local_sgd --local-steps 3 --steps 6 --save-every 50 --save locals text >>local.txt
[ "$(grep -c 'parameters are the same to the bit on 2 ranks' local.txt)" = 2 ] && [ -s local.safetensors ] &&
	[ -d locals/step_00000006 ] || {
	echo "local SGD of whole intervals: $(cat local.txt)"
	failures=1
}
if [ "$(id -u)" != 0 ]; then
	chmod 0 short
	refused 2 'cannot read short: Permission denied' short
fi
exit $failures
