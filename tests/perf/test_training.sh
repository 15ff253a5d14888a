#!/usr/bin/env bash
# What would break: the table of training speed: rows that are missing, figures that nobody measured, a run that trained
# something else and counts.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
unset WORLD_SIZE RANK

small="--layers 1 --heads 2 --channels 16 --seq 8 --batch 4 --steps 3"
training="timeout -k 5 100 $SOURCE_DIR/perf/training --build $BUILD_DIR"
# shellcheck disable=SC2086
$training $small --ranks 2,4 --rounds 2 --strategies ddp,fsdp --out result >out 2>&1 || complain "training: $(cat out)"
[ "$(grep -cE '^\| (1 rank|(apart|ddp|fsdp), [24] ranks(, shm)?) \| [0-9]+ \| [0-9.]+ \([0-9.]+-[0-9.]+\) \|.*\| [0-9.]+ % \|$' result/training.md)" = 7 ] ||
	complain "the table: $(cat out)"
awk -F, 'NR > 1 && !($5 > 0 && $6 >= 0 && $6 < 100 && $7 > 1) { bad = 1 } END { exit bad || NR != 15 }' result/training.csv ||
	complain "the figures: $(cat result/training.csv)"
# Local SGD ends with an average, whatever --steps is: the first one does not count.
# shellcheck disable=SC2086
$training $small --steps 20 --ranks 2 --rounds 1 --strategies local_sgd >out 2>&1 || complain "local_sgd: $(cat out)"
grep -q '^| local_sgd, 2 ranks, shm | [0-9]* |' out || complain "no row of local_sgd: $(cat out)"

# The perceptron, by threads too.
$training --model perceptron --batch 4 --steps 2 --ranks 2 --rounds 2 --out replicas >out 2>&1 || complain "perceptron: $(cat out)"
[ "$(grep -cE '^\| (1 rank|(apart|ddp), 2 ranks(, shm)?|(mirrored|data_parallel|share_params), 2 threads) \| [0-9]+ \| [0-9.]+ \([0-9.]+-[0-9.]+\) \|.*\| [0-9.]+ % \|$' replicas/training.md)" = 6 ] ||
	complain "the perceptron's table: $(cat out)"

# Beside busy processes, which end with it.
# shellcheck disable=SC2086
LOAD_OF=$$ $training $small --rounds 1 --strategies ddp --load 2 >out 2>&1 || complain "--load: $(cat out)"
grep -q '1 rounds, 2 busy processes' out || complain "--load is not said: $(cat out)"
left=$(grep -lzx "LOAD_OF=$$" /proc/[0-9]*/environ 2>/dev/null)
[ -z "$left" ] || complain "busy processes are left: $left"

# A gpt that ends with another loss on two ranks is found out, and one that fails.
mkdir -p fake/examples/gpt fake/launch
cat >fake/examples/gpt/gpt <<'END'
#!/bin/sh
echo "step    0   loss 4.0000      10 tokens/s    0.0 % waiting for ranks"
echo "step    3   loss ${LOSS:-2.0000}   10000 tokens/s    1.5 % waiting for ranks"
END
cat >fake/launch/tuttirun <<'END'
#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
LOSS=2.5000 exec "$@"
END
chmod +x fake/examples/gpt/gpt fake/launch/tuttirun
fake="timeout -k 5 100 $SOURCE_DIR/perf/training --build fake --rounds 1 $small"
$fake >out 2>&1
[ $? = 3 ] || complain "another loss is not found out: $(cat out)"
grep -q "it ended with a loss of 2.5, one rank with 2.0" out || complain "another loss: $(cat out)"
grep -q "^| apart, 2 ranks | 20000 | 2.00 " out || complain "what was measured before is not kept: $(cat out)"
printf '#!/bin/sh\necho broken; exit 7\n' >fake/examples/gpt/gpt
$fake >out 2>&1
[ $? = 3 ] || complain "a failure is not one: $(cat out)"
grep -q "1 rank: it ended with exit code 7" out || complain "a failure is not named: $(cat out)"

for words in "--ranks 1" "--ranks 3" "--strategies sgd" "--strategies mirrored" "--model perceptron --strategies fsdp" "--model cnn" "--rounds 0" "--steps 0" "--channels x" "--build nowhere" "--out /proc/nowhere"; do
	# shellcheck disable=SC2086
	$training $words >out 2>&1
	[ $? = 2 ] || complain "$words is not refused"
	grep -q '^usage: training' out || complain "no usage line after $words"
done
exit $failures
