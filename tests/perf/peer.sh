# The test of one peer's programs. To be sourced, with
#   peer          the first word of their names
#   peer_name     for a message
#   peer_is_here  a command: whether it is installed, so that its programs have to be there
#   peer_lacks    a type that its reductions lack, as -d wants it
#   not_there     collectives without a program; not_in_place: one without a form in place
#   ranks_of_it   with how many ranks its programs are run
#   start N       sets $launch to what stands before a program's name for N ranks, and $ranks to its options
. "$SOURCE_DIR/tests/perf/common.sh"

# mpi_is_here MPICC MPIRUN: Open MPI's wrapper names the header's folder only where a file is compiled, not standard input.
mpi_is_here()
{
	echo '#include <mpi.h>' >here.c
	"$1" -E here.c && command -v "$2"
}

if ! peer_is_here >out 2>&1; then
	echo "$peer_name is not installed"
	exit 77
fi
for collective in $collectives; do
	[[ " $not_there " = *" $collective "* ]] && continue
	program=$bin/${peer}_${collective}_perf na=$(in_place_of $collective "$not_in_place")
	for n in $ranks_of_it; do
		start $n
		# shellcheck disable=SC2086
		expect_rows 0 $run $launch "$program" $ranks -b 480 -e 480 -n 2 -w 0
		all_right 1 "$na"
		grep -q "^# ${peer}_${collective}_perf ($peer_name v*[0-9].*), $n ranks" out ||
			complain "the header: $(head -1 out)"
	done
done

start 2
# shellcheck disable=SC2086
{
	expect_rows 0 $run $launch "$bin/${peer}_reduce_perf" $ranks -b 4 -e 4K -f 32 -n 3 -r 1 --percentiles -J r.json
	ordered
	json r.json "d['program'] == '${peer}_reduce_perf' and '$peer_name' in d['library'] and len(rows) in (3, 6)"
	expect_rows 2 $run $launch "$bin/${peer}_all_reduce_perf" $ranks -b 4 -e 4 -d "$peer_lacks"
	grep -q 'has no such type' err || complain "-d $peer_lacks: $(cat err)"
	[ ! -s rows ] || complain "measured all the same: $(cat rows)"
	expect_rows 0 $run $launch "$bin/${peer}_all_reduce_perf" $ranks -b 16 -e 16 -n 1 -w 0 -d all
	grep -q "^# $peer_lacks sum: .* no such type" out || complain "-d all says nothing of $peer_lacks"
	awk '$9 != "0" || $13 != "0" { bad = 1 } END { exit bad || NR < 10 }' rows || complain "-d all: $(cat rows)"
	expect_rows 0 $run $launch "$bin/${peer}_all_gather_perf" $ranks -b 16 -e 16 -n 1 -w 0 -d all
	all_right 14
	for options in "-z 0" "-m 2" "--zero-copy" "-o avg"; do
		expect_rows 2 $run $launch "$bin/${peer}_all_reduce_perf" $ranks -b 4 -e 4 $options
		[ -s err ] && [ ! -s rows ] || complain "$options is not refused: $(cat out)"
	done
}
expect_rows 2 $run "$bin/${peer}_all_reduce_perf" -t 2
grep -q 'processes' err || complain "-t 2: $(cat err)"
exit $failures
