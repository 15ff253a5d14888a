# What the tests of tutti-sweep share. To be sourced behind scratch.sh.
python3=$(python3 -c 'import sys; print(sys.executable)')      # not a wrapper, which starts slowly
sweep="timeout -k 5 300 $python3 $BUILD_DIR/tools/tutti-sweep"
# The fake trainer, behind which DIR STEPS LR and its words come.
fake=$BUILD_DIR/tests/fake_train_main
echo '{"lr": {"_type": "uniform", "_value": [0, 1]}}' >one.json

# Processes that a test has started have this in their environment.
export SWEEP_TEST=$scratch
processes()
{
	local file
	for file in $(env -u SWEEP_TEST grep -lzsxF "SWEEP_TEST=$scratch" /proc/[0-9]*/environ); do
		tr '\0' ' ' <"${file%environ}cmdline"
	done 2>/dev/null
}

# until_true WORD...: that the command becomes true, which takes a moment.
until_true()
{
	local until=$((SECONDS + 60))
	until "$@"; do
		[ $SECONDS -lt $until ] || { complain "never so: $*"; return 1; }
		sleep 0.01
	done
}

# none_left: no trial's process is there.
is_none_there() { [ -z "$(processes)" ]; }
none_left()
{
	until_true is_none_there || processes
}

# counted_once DIR N: the journal has one end for each of N trials.
counted_once()
{
	sed -nE 's/^\{"event": "end", "trial": ([0-9]+),.*/\1/p' "$1/journal.jsonl" | sort -n | cmp -s - <(seq 0 $(($2 - 1))) &&
		[ "$(grep -c '^{"event": "begin"' "$1/journal.jsonl")" = 1 ] || complain "not each trial once: $(cat "$1/journal.jsonl")"
}
