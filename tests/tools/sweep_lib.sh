# What the tests of tutti-sweep share. To be sourced behind scratch.sh.
python3=$(python3 -c 'import sys; print(sys.executable)')
sweep="timeout -k 5 300 $python3 $BUILD_DIR/tools/tutti-sweep"
# trainer WORD...: the fake trainer's command, with the words of fake_train.py behind the rate.
fake="$python3 -BIS $SOURCE_DIR/tests/tools/fake_train.py"
echo '{"lr": {"_type": "uniform", "_value": [0, 1]}}' >one.json

# Processes that a test has started have this in their environment.
export SWEEP_TEST=$scratch
processes()
{
	python3 - <<-'END'
		import glob, os
		mark = b"SWEEP_TEST=" + os.environ["SWEEP_TEST"].encode()
		for folder in glob.glob("/proc/[0-9]*"):
		    try:
		        with open(folder + "/environ", "rb") as file:
		            is_ours = mark in file.read().split(b"\0")
		        with open(folder + "/cmdline", "rb") as file:
		            if is_ours and folder != f"/proc/{os.getpid()}":
		                print(file.read().replace(b"\0", b" ").decode())
		    except OSError:
		        continue          # it has gone, or is another user's
	END
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
	python3 - "$1/journal.jsonl" "$2" <<-'END' || complain "not each trial once: $(cat "$1/journal.jsonl")"
		import json, sys
		events = [json.loads(line) for line in open(sys.argv[1])]
		assert sorted(e["trial"] for e in events if e["event"] == "end") == list(range(int(sys.argv[2])))
		assert [e["event"] for e in events].count("begin") == 1
	END
}
