#!/usr/bin/env bash
# slow: 4 s
# What would break: the comparison of planned and measured steps: meshes that are missing, a step that is not that of the
# mesh, a correlation of something else, a run that failed and counts.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
unset WORLD_SIZE RANK

small="--layers 4 --heads 4 --channels 16 --seq 8 --batch 8 --steps 1"
layouts="timeout -k 5 100 $SOURCE_DIR/perf/layouts --build"
# shellcheck disable=SC2086
$layouts "$BUILD_DIR" $small --ranks 2,4 --rounds 2 --out result >out 2>&1 || complain "layouts: $(cat out)"
for mesh in "1 rank" "1 rank, 8 micro-batches" "dp=2, ddp" "dp=2, fsdp" "tp=2" "pp=2, gpipe, 8 micro-batches" "pp=2, interleaved of 2, 8 micro-batches" \
	"dp=2 pp=2, zero1, 1f1b, 4 micro-batches" "dp=2 tp=2, zero2" "tp=4" "cp=2 tp=2, computed again" \
	"pp=4, zero_bubble, 8 micro-batches" "dp=2 cp=2, fsdp"; do
	grep -qE "^\| $mesh \| [0-9]+ \([0-9]+-[0-9]+\) \| [0-9]+ \| [0-9.]+ \|$" result/layouts.md || complain "no row of $mesh: $(cat out)"
done
grep -qE '^\| all \| 37 \| -?[01]\.[0-9]+ \| [0-9.]+ \|$' result/layouts.md || complain "no correlation: $(cat out)"
awk -F '","|",|,' 'NR > 1 && !($(NF - 1) > 0 && $NF > 0) { bad = 1 } END { exit bad || NR != 79 }' result/layouts.csv ||
	complain "the figures: $(cat result/layouts.csv)"

# A build in which ranks take the more time the more of them there are, and a planner that says the same, or the reverse.
mkdir -p fake/examples/gpt fake/launch fake/tools
cat >fake/examples/gpt/gpt <<'END'
#!/bin/sh
n=${RANKS:-1} seen=$*
case " $seen " in *" --tp 2 "*) n=$((n + 10)) ;; esac
case " $seen " in *" --cp 2 "*) n=$((n + 20)) ;; esac
case " $seen " in *" --recompute "*) n=$((n + 40)) ;; esac
case " $seen " in *" --micro-batches 8 "*) n=$((n * ${SLOW_PARTS:-1})) ;; esac
echo "a GPT of 1 parameters, 1 characters of text, 40 different ones"
[ -z "${TUTTI_LINKS:-}" ] || echo x >"$TUTTI_LINKS"
echo "step    0   loss 4.0000      10 tokens/s    0.0 % waiting for ranks"
echo "step    1   loss 2.0000   $((100000 / n)) tokens/s    1.5 % waiting for ranks"
END
cat >fake/launch/tuttirun <<'END'
#!/bin/sh
RANKS=$2; export RANKS
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
END
cat >fake/tools/tutti-plan <<'END'
#!/bin/sh
while [ $# -gt 0 ]; do
	case $1 in --ranks) ranks=$2 ;; --csv) file=$2 ;; --flops) case $2 in -*) echo "$2 FLOP/s"; exit 2 ;; esac ;; esac
	shift
done
echo "dp,cp,pp,tp,strategy,schedule,chunks,micro_batches,recomputes,step_s" >"$file"
row() { echo "$1,$2,1,$3,$4,1f1b,1,${7:-1},$6,$5" >>"$file"; }
[ "$ranks" = 1 ] && row 1 1 1 ddp 0.001 0 && row 1 1 1 ddp 0.001 0 8
for s in ddp zero1 zero2 fsdp; do row 2 1 1 $s 0.002 0; done
set -- ${TIMES:-0.02 0.03 0.04 0.05}
row 1 1 2 ddp "$1" 0
row 1 2 1 ddp "$2" 0
row 1 1 2 ddp "$3" 1
row 1 2 1 ddp "$4" 1
END
chmod +x fake/examples/gpt/gpt fake/launch/tuttirun fake/tools/tutti-plan
fake="$layouts fake --rounds 1 --ranks 2 --layers 1 --heads 4 --channels 16 --seq 8 --batch 8 --steps 1"
$fake >out 2>&1 || complain "the fake build: $(cat out)"
grep -q '^| all | 8 | 1.00 | 1.00 |$' out || complain "planned in the measured order: $(cat out)"
grep -q '^| tp=2 | 8 (8-8) | 20 | 2.60 |$' out || complain "a row's figures: $(cat out)"
TIMES="0.0008 0.0006 0.0004 0.0002" $fake >out 2>&1 || complain "the fake build: $(cat out)"
grep -q '^| all | 8 | -1.00 | 31.02 |$' out || complain "planned in the reverse order: $(cat out)"
# On a loaded machine one sequence after the other may have taken any time.
SLOW_PARTS=9 $fake >out 2>&1 || complain "steps of one rank that are far apart: $(cat out)"
printf '#!/bin/sh\necho broken; exit 7\n' >fake/examples/gpt/gpt
$fake >out 2>&1
[ $? = 3 ] || complain "a failure is not one: $(cat out)"
grep -q "it ended with exit code 7" out || complain "a failure is not named: $(cat out)"

for words in "--ranks 1" "--rounds 0" "--steps 0" "--channels x" "--build nowhere" "--out /proc/nowhere"; do
	# shellcheck disable=SC2086
	timeout -k 5 100 "$SOURCE_DIR/perf/layouts" $words >out 2>&1
	[ $? = 2 ] || complain "$words is not refused"
	grep -q '^usage: layouts' out || complain "no usage line after $words"
done
exit $failures
