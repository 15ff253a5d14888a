# What the tests of launchers share. To be sourced.
. "$SOURCE_DIR/tests/scratch.sh"
program=$BUILD_DIR/tests/launched_main
unset TUTTI_SECRET TUTTI_SECRET_FILE TUTTI_RESTARTED RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
limit="timeout -k 5 120"
# Jobs of Open MPI share a folder that the last one to end removes while another makes it.
export OMPI_MCA_orte_tmpdir_base=$scratch

# needs NAME COMMAND...: the test is skipped where one of the commands is not there.
needs()
{
	local name=$1 command
	shift
	for command; do
		command -v "$command" >/dev/null && continue
		echo "$name is not installed"
		exit 77
	done
}

# four [N]: ./out has what four ranks print, each N times (1).
four()
{
	for _ in $(seq "${1:-1}"); do printf 'rank %d of 4: sum 10\n' 0 1 2 3; done | sort | cmp -s - <(grep '^rank' out | sort) ||
		complain "not what four ranks print: $(head -8 out) $(head -8 err)"
}

# two_at_once COMMAND...: two jobs of four ranks, each of which finds its own ranks.
two_at_once()
{
	local other
	mkdir other_job
	OMPI_MCA_orte_tmpdir_base=$PWD/other_job "$@" >other 2>&1 & other=$!
	expect 0 "$@"
	wait $other || complain "the other job: $(cat other)"
	cat other >>out
	four 2
}
