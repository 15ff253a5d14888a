#!/usr/bin/env bash
# slow: 15 s
# What would break: a sweep of a real trainer: tuttirun's jobs side by side on one port or on the same cores, ranks that outlive
# a killed sweep, metrics that are not read as examples/gpt writes them; and the commands of the example's page.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
. "$SOURCE_DIR/tests/tools/sweep_lib.sh"
tuttirun=$BUILD_DIR/launch/tuttirun
gpt=$BUILD_DIR/examples/gpt/gpt
seq 3000 >text
cp "$SOURCE_DIR/examples/sweep/space.json" .

# ---- 1, 2 and 4 ranks in a trial give one result: that of the same program without a sweep
for n in 1 2 4; do
	expect 0 $sweep space.json --method grid --parallel 2 --out n$n -- \
		"$tuttirun" -n $n "$gpt" --steps 6 --seq 16 --sample 0 --lr {lr} --log {dir} text
	counted_once n$n 2
	said '^The best is trial [01]: .*tuttirun -n '$n' .* --lr 0\.0' out
done
timeout 100 "$tuttirun" -n 2 "$gpt" --steps 6 --seq 16 --sample 0 --lr 0.01 --log alone text >log 2>&1 || complain "$(cat log)"
python3 - n1 n2 n4 <<-'END' || complain "losses of trials: $(cat n?/journal.jsonl; tail -n 1 alone/metrics.jsonl)"
	import json, sys
	alone = json.loads(open("alone/metrics.jsonl").read().split("\n")[-2])["loss"]
	for out in sys.argv[1:]:
	    ends = {e["trial"]: e for e in map(json.loads, open(f"{out}/journal.jsonl")) if e["event"] == "end"}
	    assert [ends[t]["step"] for t in (0, 1)] == [5, 5], ends
	    assert abs(ends[1]["value"] - alone) < 1e-4 and ends[0]["value"] > ends[1]["value"] + 0.01, (out, alone, ends)
END
# Trials side by side: each on cores of its own, whatever else runs here. (tuttirun binds to those that no other job has.)
expect 0 $sweep space.json --method grid --parallel 2 --out cores -- \
	sh -c 'grep Cpus_allowed_list /proc/self/status >"$0/cpus"; exec "$@"' {dir} \
	"$tuttirun" -n 1 "$gpt" --steps 2 --seq 16 --sample 0 --lr {lr} --log {dir} text
[ "$(nproc)" = 1 ] || [ "$(cat cores/trial_000?/cpus | sort -u | wc -l)" = 2 ] || complain "cores: $(cat cores/trial_000?/cpus)"

# ---- a kill of the sweep ends all ranks; the same command goes on
line="space.json --method grid --parallel 2 --out killed -- $tuttirun -n 2 $gpt --steps 40 --seq 16 --sample 0 --lr {lr} --log {dir} text"
$sweep $line >out 2>err & job=$!
both_train() { [ -s killed/trial_0000/metrics.jsonl ] && [ -s killed/trial_0001/metrics.jsonl ]; }
until_true both_train
kill -KILL "$(pgrep -P $job)"
wait $job
none_left
expect 0 $sweep $line
counted_once killed 2
none_left

# ---- Ctrl-C ends ranks in order, by their tuttirun
$sweep space.json --method grid --parallel 2 --out ended -- \
	"$tuttirun" -n 2 "$gpt" --steps 100000 --seq 16 --sample 0 --lr {lr} --log {dir} text >out 2>err & job=$!
both_train() { [ -s ended/trial_0000/metrics.jsonl ] && [ -s ended/trial_0001/metrics.jsonl ]; }
until_true both_train
kill -INT "$(pgrep -P $job)"
wait $job
[ $? = 130 ] || complain "after SIGINT: $(cat err)"
said '^tutti-sweep: SIGINT ended it after 0 of 2 trials\. '
none_left

# ---- the page of the example: its commands, with the programs of this build
python3 - "$SOURCE_DIR/examples/sweep/README.md" <<-'END' >commands
	import re, sys
	for line in re.findall(r"^    (tutti-sweep (?:[^\n\\]|\\\n)*)", open(sys.argv[1]).read(), re.M):
	    print(line.replace("\\\n", " ").replace("examples/sweep/space.json", "space.json"))
END
[ "$(wc -l <commands)" -ge 3 ] || complain "the page has no commands: $(cat commands)"
mkdir bin
printf '#!/bin/sh\nexec timeout -k 5 300 python3 %s "$@"\n' "$BUILD_DIR/tools/tutti-sweep" >bin/tutti-sweep
chmod +x bin/tutti-sweep
ln -s "$tuttirun" "$gpt" bin
while read -r line; do
	PATH=$scratch/bin:$PATH bash -c "$line" </dev/null >out 2>err || complain "$line: $(cat err)"
	case $line in *"-ts "*) said '^what it writes now:' out ;; *--dry-run*) ;; *) said '^The best is trial ' out ;; esac
done <commands
exit $failures
