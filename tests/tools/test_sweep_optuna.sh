#!/usr/bin/env bash
# slow: 40 s
# What would break: what tutti-sweep leaves to Optuna: TPE that learns nothing or forgets it in a restart, early stopping that
# stops none or the best; and, without Optuna, a message that does not say what to install.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
. "$SOURCE_DIR/tests/tools/sweep_lib.sh"

# Without it, whether it is here or not: a module of the name that cannot be imported.
mkdir hidden
echo 'raise ImportError("No module named optuna")' >hidden/optuna.py
for words in '--method tpe' '--method grid --points 2 --early-stop asha'; do
	expect 2 env PYTHONPATH=hidden $sweep one.json $words --out none -- $fake {dir} 4 {lr}
	said '^tutti-sweep: .* needs Optuna, which /.*python.* does not find \(No module named optuna\): apt-get install python3-optuna, or pip install optuna\. Without it there are --method grid and random, and no --early-stop; '
done
[ ! -e none ] || complain "a folder without a sweep"
expect 0 env PYTHONPATH=hidden $sweep one.json --method grid --points 2 --out grid -- $fake {dir} 4 {lr}

for python in "${PYTHON_WITH_OPTUNA:-$python3}" /usr/bin/python3; do
	 $python -c 'import optuna' 2>/dev/null && break
	python=
done
[ -n "$python" ] || { [ $failures = 0 ] || exit 1; echo "Optuna for Python 3 is not installed"; exit 77; }
echo "$python has Optuna $($python -c 'import optuna; print(optuna.__version__)')"
sweep="timeout -k 5 300 $python $BUILD_DIR/tools/tutti-sweep"
starts() { grep '"start"' "$1/journal.jsonl" | sort -u; }

# ---- TPE: the same seed, the same trials, also with a kill between; and it learns
echo '{"lr": {"_type": "uniform", "_value": [0, 1]}, "c": {"_type": "choice", "_value": ["x", 1, true]},
	"n": {"_type": "quniform", "_value": [2, 6, 2]}}' >space.json
line="space.json --method tpe --parallel 1 --trials 24 --seed 3"
expect 0 $sweep $line --out a -- $fake {dir} {n} {lr} {c}
counted_once a 24
for most in 4 13; do
	expect 0 $sweep $line --trials $most --out c -- $fake {dir} {n} {lr} {c}
done
# One that was begun, and not ended.
tail -n 1 c/journal.jsonl | grep -q '"end"' && sed -i '$d' c/journal.jsonl
expect 0 $sweep $line --out c -- $fake {dir} {n} {lr} {c}
diff <(starts a) <(starts c) >differ || complain "the same seed with restarts, other trials: $(head -4 differ)"
counted_once c 24
python3 - a/journal.jsonl <<-'END' || complain "TPE's later trials are no better than its first ones"
	import json, statistics, sys
	values = [e["value"] for e in map(json.loads, open(sys.argv[1])) if e["event"] == "end"]
	assert statistics.mean(values[14:]) < statistics.mean(values[:10]) - 0.05, values
END
# Several at once: which trial ends first does not matter, since each knows the results of the same others.
line="space.json --method tpe --parallel 3 --trials 18 --seed 3"
expect 0 $sweep $line --out p -- $fake {dir} {n} {lr} {c}
said ', 3 at once$'
expect 0 $sweep $line --trials 14 --out q -- $fake {dir} {n} {lr} {c}
expect 0 $sweep $line --out q -- $fake {dir} {n} {lr} {c}
diff <(starts p) <(starts q) >differ || complain "three at once, other trials: $(head -4 differ)"
line="space.json --method tpe --parallel 1 --trials 24 --seed 3"
expect 0 $sweep $line --out none --dry-run -- $fake {dir} {n} {lr} {c}
[ "$(wc -l <out)" = 10 ] || complain "not the ten that are known before: $(cat out)"
said '^tutti-sweep: those behind the first 10 depend on what these bring\.$'

# ---- early stopping: of trials that wait at a step, the worse ones get SIGTERM; the best is never stopped
echo '{"lr": {"_type": "choice", "_value": [0.3, 0.9, 0.7, 0.8, 0.35, 1, 0.6, 0.65, 0.5]}}' >choices.json
for rule in "asha --min-steps 2" "hyperband --min-steps 2 --max-steps 18"; do
	out=${rule%% *}
	expect 0 $sweep choices.json --method grid --parallel 1 --early-stop $rule --grace 20 --out $out -- $fake {dir} 18 {lr} pause:15 child
	counted_once $out 9
	said "^The best is trial 0: " out
	grep -qE '^trial [1-8] pruned: stopped at step [0-9]+$' out || complain "$rule stops none: $(cat out)"
	grep -qE '^trial 0 pruned' out && complain "$rule stops the best"
	awk '$2 == "pruned" && $4 >= 17 { exit 1 }' out || complain "stopped at the end: $(cat out)"
	# The journal's values are those of the step at which it was stopped.
	python3 - $out <<-'END' || complain "$rule: the journal is not what the metrics say: $(cat $out/journal.jsonl)"
		import json, sys
		for event in map(json.loads, open(f"{sys.argv[1]}/journal.jsonl")):
		    if event["event"] == "end" and event["state"] == "pruned":
		        rows = map(json.loads, open(f"{sys.argv[1]}/trial_{event['trial']:04d}/metrics.jsonl"))
		        assert {row["step"]: row["loss"] for row in rows}[event["step"]] == event["value"], event
	END
	grep -q 'stopped early' $out/report.html || complain "$rule: the page does not say what was stopped"
	none_left
	cp out before
	expect 0 $sweep choices.json --method grid --parallel 1 --early-stop $rule --grace 20 --out $out -- $fake {dir} 18 {lr} pause:15 child
	cmp out before || complain "$rule: another table when it is shown again"
done
# One that ignores SIGTERM is killed after the grace, and is stopped all the same.
expect 0 $sweep choices.json --method grid --trials 2 --parallel 1 --early-stop asha --grace 0.1 --out stay -- $fake {dir} 30 {lr} pause:15 stay
said '^trial 1 pruned: stopped at step 0$' out
none_left
# TPE with early stopping, several at once: no number is left out or counted twice.
expect 0 $sweep space.json --method tpe --early-stop hyperband --max-steps 6 --parallel 3 --trials 15 --out d -- $fake {dir} {n} {lr} {c} pause:10
counted_once d 15
expect 0 $sweep space.json --mode max --method tpe --early-stop asha --trials 6 --out e -- $fake {dir} {n} {lr} {c}
counted_once e 6
exit $failures
