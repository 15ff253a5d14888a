#!/usr/bin/env bash
# slow: 10 s
# no_asan: it times or compares programs that other tests run here, too
# What would break: a comparison that blames the wrong one, hides who failed, or shows a wrong result as a time.
# The builds and the peers are fakes with times that are known.
set -u
. "$SOURCE_DIR/tests/perf/fake_compare.sh"

# ---- ratios are those of the times that were made up, the best peer is the best one
export FAKE='openmpi_=x3;mpich_=x2'
compare 0 --sizes 16,1K,64K --rounds 4 --out result
says '| 16 B |'
says '| MPICH |'                                                          # the best peer at each size
ratio=$(sed -n 's/^| 1 KiB [^*]*\*\*\([0-9.]*\)\*\* .*/\1/p' out)
awk -v r="$ratio" 'BEGIN { exit !(r > 1.9 && r < 2.1) }' || complain "a ratio of 2 came out as '$ratio'"
says 'shared memory: Open MPI, no CMA, malloc; '
says 'UCX_TLS=sm,self'
grep -qE '\| 2x: (1.9|2.0)' out || complain "no target and what was reached: $(tail -12 out)"
for file in results.csv results.json table.md report.html; do
	[ -s "result/$file" ] || complain "$file was not written"
done
[ "$(wc -l <result/results.csv)" = $((1 + 3 * 4 * 8)) ] || complain "$(wc -l <result/results.csv) lines in the CSV"
says '<polyline' result/report.html
# Of times, of bandwidths, and of ratios of ours.
[ "$(grep -o 'class="spread"' result/report.html | wc -l)" = $((2 * 3 * 8 + 3 * 2)) ] || complain "not every point shows its spread"
says 'class="reached"' result/report.html
python3 - <<'END' || complain "the page is not XML with three charts"
import xml.dom.minidom
charts = [svg for svg in xml.dom.minidom.parse("result/report.html").getElementsByTagName("svg") if svg.hasAttribute("viewBox")]
assert len(charts) == 3, charts
END
grep -qE "$(hostname)|$scratch|${USER:-nobody-at-all}@" result/* && complain "host, user or path in a result"
python3 - <<'END' || complain "results.json is not as it should be"
import json
result = json.load(open("result/results.json"))
assert result["complete"] and len(result["points"]) == 3, result
assert all(len(t) == 4 for p in result["points"] for t in p["times_us"].values())
END

# ---- beside busy processes, which each program makes
compare 0 --sizes 16 --rounds 2 --load 3 --out loaded
json loaded 'd["settings"]["busy processes"] == 3'
grep -h . build/perf/*.loads | sort -u >loads
[ "$(cat loads)" = 3 ] || complain "the programs were started with other loads: $(cat loads)"
compare 2 --load 2000
says "'2000' is not a number of busy processes from 0 to 1024"

# ---- every way to talk, several types, what has no size
compare 0 --over shm,tcp --sizes 64K --rounds 2 --dtype float,bfloat16 --collectives all_reduce,barrier --out all
says 'tcp,self'
says 'FI_PROVIDER=tcp MPIR_CVAR_NOLOCAL=1'
says 'Gloo' all/table.md
says 'bf16 to f32, TCP' all/table.md
says '## barrier, 2 ranks, TCP, float' all/table.md

# ---- who is missing is named with what brings it
rm build/perf/mpich_all_reduce_perf
compare 0 --sizes 16 --rounds 2
says "MPICH is left out of all_reduce: mpich_all_reduce_perf was not built"
says 'mpich and libmpich-dev'
ln build/program build/perf/mpich_all_reduce_perf
mv build/perf/all_reduce_perf build/perf/elsewhere
compare 3 --sizes 16 --rounds 2                                          # a build without the program
says 'Tutti is left out of all_reduce: all_reduce_perf was not built; cmake --build --preset release does.'
says "limits could not be measured, since perf/limits was not built"
mv build/perf/elsewhere build/perf/all_reduce_perf
fake_launcher bin/mpirun.mpich 'somebody else'
if ! command -v mpiexec.hydra >/dev/null; then
	compare 0 --sizes 16 --rounds 2
	says "MPICH is not here: Debian's mpich and libmpich-dev bring it."
fi
rm bin/mpirun.mpich
fake_launcher bin/mpirun.mpich HYDRA

# ---- a contender that fails or hangs is left out, and said to be
FAKE='mpich_=dies@3' compare 0 --sizes 16 --rounds 4 --out dies
says 'MPICH is left out of all_reduce, 2 ranks, shared memory, float, from here on: it ended with exit code 3'
says '    the message before it died'
says 'it ended with exit code 3' dies/report.html
! grep -q ',MPICH,' dies/results.csv || complain "half measured times are in the CSV"
json dies "not d['complete'] and [(o['contender'], o['kind'], o['why']) for o in d['left_out'] if o['contender'] == 'MPICH'] == [
	('MPICH', 'failed', 'it ended with exit code 3')]"
says 'Not complete: without MPICH in all_reduce, 2 ranks, shared memory, float, since it ended with exit code 3.' dies/table.md
FAKE='mpich_=refuses' compare 0 --sizes 16 --rounds 2 --out refuses
says 'MPICH is left out of all_reduce, 2 ranks, shared memory, float, since there is no such type (exit code 2).' refuses/table.md
# What several lack is one line, on the terminal too.
FAKE='openmpi_=refuses;mpich_=refuses' compare 0 --sizes 16,1M --rounds 2 --out refuse
for file in out refuse/table.md refuse/report.html; do
	says 'Open MPI, no CMA, malloc; ' $file
	says '; MPICH are left out of all_reduce, 2 ranks, shared memory, float, since there is no such type (exit code 2).' $file
done
[ "$(grep -c 'there is no such type' out)" = 1 ] || complain "refused more than once: $(cat out)"
json refuse "d['complete'] and {o['kind'] for o in d['left_out'] if 'MPI' in o['contender']} == {'cannot be had'}"
FAKE='mpich_=hangs' compare 0 --sizes 16 --rounds 2 --timeout 1
says 'it did not end within 1 s'
says '    the line before it hung'
# Once for each collective, number of ranks and way to talk, whatever the types; after two of those nowhere any more.
rm -f build/perf/*.starts
FAKE='mpich_=hangs' compare 0 --sizes 16,1M --rounds 2 --timeout 3 --dtype float,bfloat16 --collectives all_reduce,broadcast,barrier \
	--out hangs
says 'MPICH is left out of all_reduce, 2 ranks, shared memory, from here on: it did not end within 3 s'
says 'MPICH is left out of all that follows: it did not end in time in all_reduce, 2 ranks, shared memory and in broadcast, 2 ranks'
says 'MPICH is left out of all that follows' hangs/report.html
[ "$(cat build/perf/mpich_*.starts)" = .. ] || complain "who hung was started again: $(wc -c build/perf/mpich_*.starts)"
! grep -q ',MPICH,' hangs/results.csv || complain "who hung is in the CSV"
json hangs "[o['where'].split(',')[0] for o in d['left_out'] if o['contender'] == 'MPICH'] == ['all_reduce', 'broadcast', 'barrier']"
FAKE='build/perf/all_reduce=dies' compare 3 --sizes 16 --rounds 2
says 'Tutti is left out of all_reduce'
rm -f build/perf/*.starts
FAKE='build/perf/all_reduce=killed@5' compare 3 --sizes 16 --rounds 4 --out killed
for file in out killed/table.md killed/report.html; do
	says 'Not complete: without Tutti' $file
	says ' in all_reduce, 2 ranks, shared memory, float, since it was ended by signal 9.' $file
done
says '"complete": false' killed/results.json

# ---- a wrong result fails everything
FAKE='mpich_=wrong@3' compare 1 --sizes 16,1K --rounds 4 --out wrong
says 'MPICH gave WRONG VALUES in all_reduce, 2 ranks, shared memory, float, 16 to 1024 B.'
says 'WRONG VALUES' wrong/report.html
says '"complete": false' wrong/results.json

# ---- an interrupted run keeps what it has, and leaves no process
FAKE='mpich_broadcast=hangs' timeout --foreground -k 5 100 "$SOURCE_DIR/perf/compare" --build build --out interrupted \
	--collectives all_reduce,broadcast --sizes 16 --rounds 2 >out 2>&1 &
pid=$!
until grep -q '## all_reduce' out && [ -e build/perf/mpich_broadcast_perf.starts ]; do
	kill -0 $pid 2>/dev/null || break
	read -rt 0.1 <> <(:)
done
kill -TERM $pid
wait $pid
says 'Interrupted'
says ',all_reduce,float,16,MPICH,2,' interrupted/results.csv
says '"complete": false' interrupted/results.json
pgrep -f "$scratch/build/perf" && complain "processes are left"
# So does a terminal that goes away; and before anything is measured older results stay.
cp interrupted/results.csv older.csv
rm -f build/perf/mpich_all_reduce_perf.starts
FAKE='mpich_all_reduce=hangs' timeout --foreground -k 5 100 "$SOURCE_DIR/perf/compare" --build build --out interrupted \
	--sizes 16 --rounds 2 >out 2>&1 &
pid=$!
until [ -e build/perf/mpich_all_reduce_perf.starts ]; do
	kill -0 $pid 2>/dev/null || break
	read -rt 0.1 <> <(:)
done
kill -HUP $pid
wait $pid
says 'Nothing was measured: the files in interrupted are older ones.'
cmp interrupted/results.csv older.csv || complain "the older results are gone"
pgrep -f "$scratch/build/perf" && complain "processes are left after HUP"

# ---- half an element is none
compare 0 --sizes 10 --rounds 2 --out halves
says ',all_reduce,float,8,MPICH,2,' halves/results.csv

# ---- lines that cannot be understood
for words in "--collectives all_reduce,nonsense" "--rounds 0" "--rounds 1" "--ranks 1" "--ranks two" "--ranks 1_0" "--ranks 2," "--ranks +2" "--ranks 1025" "--sizes 0" \
	"--sizes 4K-1K" "--sizes 1-9*1" "--sizes 1-9*" "--sizes 1-9*2_0" "--sizes 65537G" "--sizes 1_0" "--over pigeon" "--dtype float80" "--build nowhere" \
	"--timeout 0" "--timeout -1" "--timeout nan" "--timeout inf" "--out build/program" "--out /proc/nowhere" "--unknown"; do
	# shellcheck disable=SC2086
	compare 2 $words
	says 'usage: compare'
done
compare 2 --build nowhere
says 'there is no build of Tutti in nowhere'

# ---- a size that has no element for every rank is not measured: its times would be those of nothing
compare 0 --sizes 3,8 --rounds 2
says '3 B is left out of all_reduce, 2 ranks, shared memory: one element for each rank takes 4 B.'
! grep -q '^| 3 B |' out || complain "3 B of f32 were measured"
compare 2 --sizes 3 --rounds 2 --collectives all_reduce,broadcast --out nothing
says 'nothing would be measured: one element for each rank takes 4 B at least, and the largest of --sizes is 3 B'
[ ! -e nothing ] || complain "a folder was made for nothing"
compare 0 --sizes 3 --rounds 2 --collectives all_reduce,barrier

# ---- what cannot be written in the end is said, after the tables
FAKE='mpich_=removes' compare 3 --sizes 16 --rounds 2 --out late
says '| 16 B |'
says 'compare: the results could not be written'

# ---- what would make a contender another one than it says
GLIBC_TUNABLES=glibc.malloc.trim_threshold=1 PMI_RANK=0 SLURM_JOB_ID=1 OMP_PLACES=cores compare 0 --sizes 16 --rounds 2
says 'Left out of the environment: GLIBC_TUNABLES, OMP_PLACES, PMI_RANK, SLURM_JOB_ID.'

python3 -B "$SOURCE_DIR/tests/perf/harness_cases.py" || failures=1
exit $failures
