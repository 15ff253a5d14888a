#!/usr/bin/env bash
# slow: 2 s
# no_asan: it times or compares programs that other tests run here, too
# What would break: limits of a busy moment that are taken for the machine's, and a target that is lowered in silence. The
# program limits is a fake whose figures are known.
set -u
. "$SOURCE_DIR/tests/perf/fake_compare.sh"
export FAKE='openmpi_=x3;mpich_=x1.5'

# The flag takes $FLAG ns in the first measurement, then $LATER, each with a median of 283; nothing: there is one core.
# Copying goes at 10 GB/s at best. The part that is $BROKEN fails.
cat >build/perf/limits <<'END'
#!/bin/bash
while [ $# -gt 1 ]; do
	[ "$1" != -J ] || file=$2
	shift
done
echo . >>"$0.$1"
if [ "$1" = "$BROKEN" ]; then
	echo 'limits: rank 1 of 2 was ended by signal 9 (Killed), so all of them were ended.'
	exit 3
fi
flag=$FLAG
[ "$(wc -l <"$0.$1")" = 1 ] || flag=$LATER
skipped='"flag": "there is one core only"'
exec >"$file"
echo '{"program": "limits", "cores": 2,'
case $1 in
flag)
	if [ -n "$flag" ]; then
		skipped=
		echo "\"flag_ns\": $flag, \"quartiles\": {\"flag_ns\": [200, 283, 300]},"
	fi
	echo "\"skipped\": {$skipped}," ;;
loopback) echo '"loopback_latency_us": 2.8, "loopback_GBps": 12, "quartiles": {"loopback_GBps": [9, 10, 11]},' ;;
bandwidth) row='{"pattern": "copy", "cores": 2, "bytes": 1048576, "GBps": 10, "quartiles": [0.9, 1, 1.1]}' ;;
esac
echo "\"bandwidth\": [$row]}"
END
chmod +x build/perf/limits

# measured FLAG LATER [BROKEN [WORD...]]: into the folder result.
measured()
{
	local words=("${@:4}")
	rm -f build/perf/limits.*
	export FLAG=$1 LATER=$2 BROKEN=${3:-}
	[ $# -gt 3 ] || words=(--sizes 64,1M)
	compare 0 "${words[@]}" --rounds 2 --out result
}

# everywhere MESSAGE: it is said on the terminal and in both reports. N in it stands for a number: between others' starts
# limits are measured as often as the machine allows.
everywhere()
{
	local file
	for file in out result/table.md result/report.html; do
		sed -E 's/[0-9]+ (measurements)/N \1/g' $file >said
		says "$1" said
	done
}

# ---- of limits the lowest that was ever seen counts; of how far the cores are, what most measurements found
measured 283 124
everywhere 'a flag from core to core 124 ns (283-283)'
everywhere 'in both directions together 12.00 GB/s (10.00-10.00)'
everywhere 'A flag takes 124 ns from core to core (the median of N measurements, 124-283), not more than 150: they are near each other, so shared memory, 64 B - 1 KiB, 2 ranks, has the target 1.8x (1.3x where they are far).'
grep -qE '64 B - 1 KiB \| 1.8x: ' out || complain "the target of near cores: $(cat out)"
json result "d['complete'] and d['limits']['flag_ns'] == 124 and d['limits']['ranges']['flag_ns'] == [283, 283]"
json result "[(b['GBps'], b['low'], b['high']) for b in d['limits']['bandwidth']] == [(10, 1, 1)]"
everywhere ' would reach it, and the limit copy is 210 us.'
! grep -q 'does not allow' out || complain "a limit of a busy moment: $(cat out)"
measured 210 250
everywhere 'A flag takes 250 ns from core to core (the median of N measurements, 210-250), more than 150: they are far from each other, so shared memory, 64 B - 1 KiB, 2 ranks, has the target 1.3x instead of 1.8x.'
grep -qE '64 B - 1 KiB \| 1.3x: ' out || complain "the target of far cores: $(cat out)"

measured 18 210
everywhere 'A flag takes 210 ns from core to core (the median of N measurements, 210-210; 1 below 20 ns is not believed), more than 150: '
everywhere 'a flag from core to core 210 ns'
measured 18 18
everywhere 'How far the cores are from each other is not known (N measurements below 20 ns are not believed), so they count as near: '
json result "'flag_ns' not in d['limits'] and set(d['limits']['flags']) == {18} and len(d['limits']['flags']) >= 6"

# ---- of a target that nothing was measured for nothing is said
measured 124 124 '' --over tcp --sizes 64
everywhere 'a flag from core to core 124 ns'
! grep -qE 'has the target|A flag takes' out result/table.md result/report.html || complain "a target of nothing: $(cat out)"

# ---- what cannot be had is said, and the rest is there
measured 124 124 loopback
everywhere "limit loopback could not be measured: rank 1 of 2 was ended by signal 9 (Killed), so all of them were ended."
everywhere 'Not complete: without limits loopback in the whole run, since rank 1 of 2 was ended by signal 9 (Killed), so all of them were ended.'
json result "not d['complete'] and d['limits']['flag_ns'] == 124 and 'loopback_GBps' not in d['limits']"
[ "$(wc -l <build/perf/limits.loopback)" = 1 ] || complain "what had failed was tried again"
measured "" ""
everywhere "limit flag is not measured, since there is one core only."
everywhere 'How far the cores are from each other is not known, so they count as near: '
json result "d['complete'] and 'flag_ns' not in d['limits'] and d['limits']['loopback_GBps'] == 12"
exit $failures
