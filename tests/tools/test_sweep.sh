#!/usr/bin/env bash
# slow: 5 s
# What would break: a sweep whose trials are not those of its seed, that counts a failed trial, shares cores, leaves processes,
# goes on as another one, or that nobody can read. The trainers are fakes; test_sweep_gpt.sh has a real one.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
. "$SOURCE_DIR/tests/tools/sweep_lib.sh"
for cases in sweep_cases sweep_whole_cases; do
	python3 -B "$SOURCE_DIR/tests/tools/$cases.py" >cases 2>&1 || complain "$cases: $(cat cases)"
done

# ---- a terminal of another encoding, and streams that are closed or full
echo '{"word": {"_type": "choice", "_value": ["\u00e4"]}}' >word.json
line="word.json --method grid --out word -- $fake {dir} 4 0.5 {word}"
expect 0 env PYTHONIOENCODING=ascii $sweep $line
said '^word/report.html shows it\.$' out
grep -q 'xe4' out || complain "the table: $(cat out)"
expect 0 sh -c "exec $sweep $line 2>&-"
grep -q '^tutti-sweep:' out && complain "messages came to stdout: $(cat out)"
expect 1 sh -c "exec $sweep $line >/dev/full"
said '^tutti-sweep: stdout could not be written: No space left on device\.$'
expect 1 sh -c "exec $sweep $line >&-"
said '^tutti-sweep: stdout could not be written: Bad file descriptor\.$'
expect 1 sh -c "exec $sweep --help <&- >&-"
expect 0 $sweep --version
exit $failures
