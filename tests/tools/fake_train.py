"""fake_train.py DIR STEPS LR [WORD...]: a trainer for tests of tutti-sweep, whose loss at a step follows from LR alone. Words:
    step:FILE  takes a step only once FILE has grown by a byte       exit:N  ends with N
    nan:STEP   its loss is not a number from that step on            stay    ignores SIGTERM
    pause:MS   after each step
    child      starts a process that outlives it                     cpus    writes which CPUs it may use"""
import json
import os
import signal
import subprocess
import sys
import time

folder, steps, lr, *words = sys.argv[1:]
told = dict(word.partition(":")[::2] for word in words)
if "stay" in told:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "child" in told:
    subprocess.Popen(["sleep", "1000"])
if "cpus" in told:
    with open(os.path.join(folder, "cpus"), "w", encoding="ascii") as file:
        file.write(" ".join(map(str, sorted(os.sched_getaffinity(0)))))


def loss_at(step):
    if step >= int(told.get("nan", steps)):
        return "NaN"
    return abs(float(lr) - 0.3) + 1 / (step + 1)


with open(os.path.join(folder, "metrics.jsonl"), "a", buffering=1, encoding="ascii") as file:
    for step in range(int(steps)):
        while "step" in told and os.path.getsize(told["step"]) <= step:
            time.sleep(0.01)
        time.sleep(float(told.get("pause", 0)) / 1000)
        file.write(json.dumps({"step": step, "time": time.time(), "loss": loss_at(step)}) + "\n")
print("the loss is", loss_at(int(steps) - 1))
sys.exit(int(told.get("exit", 0)))
