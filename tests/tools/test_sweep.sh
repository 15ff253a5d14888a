#!/usr/bin/env bash
# slow: 15 s
# What would break: a sweep whose trials are not those of its seed, that counts a failed trial, shares cores, leaves processes,
# goes on as another one, or that nobody can read. The trainers are fakes; test_sweep_gpt.sh has a real one.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
. "$SOURCE_DIR/tests/tools/sweep_lib.sh"
python3 -B "$SOURCE_DIR/tests/tools/sweep_cases.py" >cases 2>&1 || complain "$(cat cases)"

# ---- the same seed, the same trials; the best first
expect 0 $sweep one.json --seed 5 --trials 6 --out a -- $fake {dir} 4 {lr}
cp out table
said '^tutti-sweep: 6 trials by random, seed 5, '
said '^tutti-sweep: trial [0-5]: loss 0\.[0-9]*, [0-9.]* s: lr=[0-9.e-]* \(6 of 6\)$'
[ "$(awk 'NR > 1 && NR < 8 { print $3 }' out)" = "$(awk 'NR > 1 && NR < 8 { print $3 }' out | sort -n)" ] || complain "not sorted: $(cat out)"
said "^The best is trial $(awk 'NR == 2 { print $1 }' out): $fake a/trial_000$(awk 'NR == 2 { print $1 }' out) 4 0\.[0-9]*$" out
said '^a/report.html shows it\.$' out
expect 0 $sweep one.json --seed 5 --trials 6 --parallel 1 --out b -- $fake {dir} 4 {lr}
cut -d, -f1-4 b/journal.jsonl | grep start | sort >b.starts
cut -d, -f1-4 a/journal.jsonl | grep start | sort | cmp - b.starts || complain "another order, other trials: $(cat b.starts)"
expect 0 $sweep one.json --seed 6 --trials 6 --out c -- $fake {dir} 4 {lr}
cut -d, -f1-4 c/journal.jsonl | grep start | sort | cmp -s - b.starts && complain "another seed, the same trials"
expect 0 $sweep one.json --trials 1 --out d -- $fake {dir} 4 {lr}
said '^tutti-sweep: 1 trial by random, seed [0-9]+, '
[ "$(cat a/trial_0002/params.json)" = "{\"lr\": $(awk '$1 == 2 { print $6 }' table)}" ] || complain "params.json: $(cat a/trial_0002/params.json table)"

# ---- losses that are far off, and a terminal of another encoding
cat >diverges.py <<-'END'
	import json, sys
	with open(sys.argv[1] + "/metrics.jsonl", "w") as file:
	    for step, loss in enumerate((0.5, float(sys.argv[2]), -1e308, 1e308, 0.25)):
	        file.write(json.dumps({"step": step, "loss": loss}) + "\n")
END
echo '{"far": {"_type": "choice", "_value": [1e300, 1]}, "word": {"_type": "choice", "_value": ["\u00e4"]}}' >far.json
expect 0 env PYTHONIOENCODING=ascii $sweep far.json --method grid --out far -- $python3 diverges.py {dir} {far} {word}
said '^far/report.html shows it\.$' out
grep -q 'xe4' out || complain "the table: $(cat out)"
expect 0 sh -c "exec $sweep far.json --method grid --out quiet -- $python3 diverges.py {dir} {far} {word} 2>&-"
grep -q '^tutti-sweep:' out && complain "messages came to stdout: $(cat out)"

# ---- the same command goes on: here nothing is left to do; more trials; and what must be the same
expect 0 $sweep one.json --seed 5 --trials 6 --out a -- $fake {dir} 4 {lr}
cmp out table || complain "another table of the same trials"
said '; 6 ended before$'
expect 0 $sweep one.json --trials 8 --out a -- $fake {dir} 4 {lr}
counted_once a 8
said '^tutti-sweep: 8 trials by random, seed 5, '
refused()
{
	expect 1 $sweep "$@"
	[ "$(wc -l <err)" = 4 ] || complain "not said in four lines: $(cat err)"
}
refused one.json --out a -- $fake {dir} 5 {lr}
said '^tutti-sweep: a has a sweep with another command\.$'
said "^  there: .*fake_train.py '\{dir\}' 4 '\{lr\}'$"
said "^  now:   .*fake_train.py '\{dir\}' 5 '\{lr\}'$"
echo '{"lr": {"_type": "uniform", "_value": [0, 2]}}' >two.json
refused two.json --out a -- $fake {dir} 4 {lr}
said '^  there: .*\[0, 1\]'
said '^  now:   .*\[0, 2\]'
refused one.json --seed 9 --out a -- $fake {dir} 4 {lr}
said '^tutti-sweep: a has a sweep with another --seed\.$'
counted_once a 8

# ---- failures have reasons, and are never the best
echo '{"w": {"_type": "choice", "_value": ["nan:3", "exit:7", "nan:9"]}}' >words.json
expect 0 $sweep words.json --method grid --out f -- $fake {dir} 4 0.5 {w}
said '^trial 0 failed: loss is nan at step 3$' out
said '^trial 1 failed: it ended with exit code 7; its last line: the loss is 0\.45$' out
said '^The best is trial 2: ' out
expect 1 $sweep one.json --trials 2 --out g -- sh -c 'echo no GPU >&2; kill -9 $$ {lr}' {dir}
said '^trial 1 failed: it was killed by signal 9, Killed; its last line: no GPU$' out
said '^No trial has a result\.$' out
expect 1 $sweep one.json --trials 1 --out h -- sh -c ': {lr}' {dir}
said '^trial 0 failed: it has written no row of metrics.jsonl in its \{dir\}$' out
expect 1 $sweep one.json --trials 1 --metric los --out i -- $fake {dir} 4 {lr}
said '^trial 0 failed: its metrics.jsonl has no los, but loss; did you mean loss\?$' out
expect 0 $sweep one.json --trials 1 --value best --mode max --out j -- $fake {dir} 4 0.3 {lr}
grep -q '^ *0 *done *1 *3 ' out || complain "not the greatest loss: $(cat out)"
: >closed
expect 1 $sweep one.json --trials 1 --trial-timeout 0.2 --grace 0.2 --out k -- $fake {dir} 4 {lr} step:closed stay child
said '^trial 0 failed: it ran longer than 0\.2 s$' out
none_left

# ---- a grid; --dry-run starts nothing
echo '{"lr": {"_type": "loguniform", "_value": [0.01, 1]}, "n": {"_type": "randint", "_value": [3, 5]}}' >grid.json
expect 0 $sweep grid.json --method grid --points 3 --out dry --dry-run -- $fake {dir} {n} {lr} {trial}
printf '%s\n' "0 3 0.01" "1 4 0.01" "2 3 0.1" "3 4 0.1" "4 3 1" "5 4 1" | while read -r k n lr; do
	echo "$fake dry/trial_000$k $n $lr $k"
done >expected
sed 's/\.0 / /' out | cmp - expected || complain "the grid is: $(cat out)"
[ ! -e dry ] || complain "--dry-run leaves a folder"

# ---- several side by side: cores of their own
expect 0 $sweep one.json --trials 2 --parallel 2 --out l -- $fake {dir} 4 {lr} cpus
if [ "$(nproc)" -gt 1 ]; then
	[ -z "$(cat l/trial_000?/cpus | tr ' ' '\n' | sort | uniq -d)" ] || complain "both use: $(cat l/trial_000?/cpus)"
fi
expect 0 taskset -c 0 $sweep one.json --trials 2 --out m -- $fake {dir} 4 {lr} cpus
said ', 1 at once$'
[ "$(cat m/trial_0000/cpus)" = 0 ] || complain "not within its affinity: $(cat m/trial_0000/cpus)"
expect 0 $sweep one.json --trials 1 --cores-per-trial 1000 --out n -- $fake {dir} 4 {lr}
said '^tutti-sweep: 1 trial of 1000 cores must do with [0-9]+ cores? here\.$'
expect 1 $sweep one.json --trials 2 --parallel 2 --memory-per-trial 1000T --out o -- $fake {dir} 4 {lr}
said '^tutti-sweep: 2 trials of 1024000.0 GiB need more than the .* choose a smaller --parallel\.$'
half=$(awk '/MemAvailable/ { print int($2 / 1024 * 0.7) }' /proc/meminfo)M
expect 0 $sweep one.json --trials 1 --memory-per-trial "$half" --out p -- $fake {dir} 4 {lr} && said ', 1 at once$'

# ---- -ts: one run with the best values, and no search
best=$(awk 'NR == 2 { print $6 }' table)
number=$(awk 'NR == 2 { print $1 }' table)
for words in "-ts {best}/params.json" "-sr -ts {best}/params.json" "-ts {best}/params.json --search"; do
	expect 0 $sweep one.json $words --out a -- echo tested {checkpoint} {lr} {dir}
	[ "$(cat out)" = "tested a/trial_000$number/params.json $best a/test" ] || complain "$words: $(cat out err)"
done
said '^tutti-sweep: test mode \(-ts\) wins over search \(-sr\): nothing is searched\.$'
expect 7 $sweep one.json -ts one.json --set lr=0.125 --out none -- sh -c '[ {lr} = 0.125 ] && grep -q 0.125 {params} && exit 7 # {checkpoint}'
counted_once a 8
test_refused()
{
	local message=$1
	shift
	expect 1 $sweep one.json "$@"
	said "^tutti-sweep: $message"
}
test_refused 'none/journal.jsonl could not be read: No such file' -ts one.json --out none -- echo {lr} {checkpoint}
test_refused 'g has no trial with a result' -ts one.json --out g -- echo {lr} {checkpoint}
test_refused 'there is no checkpoint a/absent\.$' -ts a/absent --out a -- echo {lr} {checkpoint}
test_refused 'the command has no \{checkpoint\}' -ts one.json --out a -- echo {lr}
expect 2 $sweep one.json -ts one.json --set rl=1 --out a -- echo {lr} {checkpoint}
expect 2 $sweep one.json --set lr=1 --out a -- echo {lr} {dir}

# ---- lines that are wrong
wrong()
{
	local message=$1
	shift
	expect 2 $sweep "$@"
	[ "$(wc -l <err)" = 1 ] || complain "$*: not one line: $(cat err)"
	said "^tutti-sweep: .*$message.*; tutti-sweep --help says more\.$"
}
wrong 'there is no option --paralel; did you mean --parallel\?' one.json --paralel 2 -- $fake {dir} 4 {lr}
wrong "there is no 'asha', but grid, random, tpe; it is a rule for stopping trials: --early-stop asha" one.json --method asha -- $fake
wrong "there is no 'rnadom', .*; did you mean random\?" one.json --method rnadom -- $fake
wrong "'0' is no whole number from 1 to" one.json --trials 0 -- $fake
wrong '2X is no size: ' one.json --memory-per-trial 2X -- $fake
wrong 'it needs a command behind --' one.json --trials 3
wrong 'it needs a space.json' --trials 3 -- $fake
wrong "'more' is too much" one.json more -- $fake
expect 1 $sweep absent.json -- $fake {dir} 4 {lr}
said '^tutti-sweep: absent.json could not be read: No such file or directory\.$'
expect 1 $sweep one.json --trials 2 --out started -- ./{trial} {lr} {dir}
said '^tutti-sweep: a trial could not be started: \./[01]: No such file or directory\.$'
expect 1 $sweep one.json --out one.json -- $fake {dir} 4 {lr}
said '^tutti-sweep: one.json/journal.jsonl could not be opened: '
expect 0 $sweep --version
expect 1 sh -c "exec $sweep one.json --seed 5 --trials 8 --out a -- $fake {dir} 4 {lr} >/dev/full"
said '^tutti-sweep: stdout could not be written: No space left on device\.$'

# ---- the page is whole, asks no network, and has what there was
python3 - a/report.html f/report.html <<-'END' || complain "the page: $(head -c 600 a/report.html)"
	import re, sys
	import xml.etree.ElementTree as ElementTree
	for path in sys.argv[1:]:
	    text = open(path, encoding="utf-8").read()
	    tree = ElementTree.fromstring(text)
	    assert not re.search(r"(?:https?|ftp|file)://|\b(?:src|href|action)\s*=|@import|\burl\(|\bfetch\(", text), path
	    titles = [element.text or "" for element in tree.iter("title")]
	    rows = ["".join(row.itertext()) for row in tree.iter("tr")]
	    if path.startswith("a/"):
	        assert sum(bool(re.fullmatch(r"trial \d: lr 0\.\d+, loss 0\.\d+", title)) for title in titles) == 8, titles
	        assert sum(title.startswith("trial 5: step ") for title in titles) == 4, titles
	        assert "The best is trial" in "".join(tree.itertext())
	    else:
	        assert any("exit code 7" in row for row in rows) and any("loss is nan at step 3" in row for row in rows), rows
END
none_left
exit $failures
