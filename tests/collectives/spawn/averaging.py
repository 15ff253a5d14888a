"""Runs examples/calls/average.c and evaluate.c on 1, 2 and 4 ranks of their own, and of tuttirun's, and compares with the same
arithmetic done here, one rank after the other. Then a rank is killed in the middle (dying_call_main.c)."""
import math
import os
import re
import subprocess
import sys

BUILD = sys.argv[1]
SAMPLES, PASSES = 1200, 5


def uniform(index):
    bits = 0xffffffff
    value = ((index ^ (index >> 16)) * 2246822519 + 374761393) & bits
    value = ((value ^ (value >> 13)) * 3266489917) & bits
    return (value ^ (value >> 16)) / 2147483648.0 - 1


def learn(w, first, last):
    w = list(w)
    for i in range(first, last):
        x, y = uniform(2 * i), uniform(2 * i + 1)
        off = 1 / (1 + math.exp(-(w[0] * x + w[1] * y + w[2]))) - (y > x / 2 + 0.25)
        w = [w[0] - off * x, w[1] - off * y, w[2] - off]
    return w


def averaged(size):
    w = [0.0] * 3
    for _ in range(PASSES):
        each = [learn(w, SAMPLES * rank // size, SAMPLES * (rank + 1) // size) for rank in range(size)]
        w = [sum(part) / size for part in zip(*each)]
    return w


def evaluated():
    loss, right = 0, 0
    for i in range(5000, 6003):
        x, y = uniform(2 * i), uniform(2 * i + 1)
        z, is_above = -3 * x + 6 * y - 1.5, y > x / 2 + 0.25 + uniform(i) / 9
        loss += round(math.log1p(math.exp(-z if is_above else z)) * 4294967296)
        right += (z > 0) == is_above
    return loss / 4294967296 / 1003, right / 1003


def numbers_of(*command):
    said = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if said.returncode != 0 or said.stderr:
        sys.exit(f"{' '.join(command)}: code {said.returncode}, {said.stderr}")
    return said.stdout, [float(number) for number in re.findall(r"-?\d+\.\d+", said.stdout)]


def check(is_right, what):
    if not is_right:
        sys.exit(f"averaging: {what}")


programs = {name: f"{BUILD}/tests/example_{name}" for name in ("average", "evaluate")}
tuttirun = f"{BUILD}/launch/tuttirun"
seen = set()
for size in 1, 2, 4:
    expected = averaged(size)
    for way in ([programs["average"], "--ranks", str(size)], [tuttirun, "-n", str(size), programs["average"]]):
        text, found = numbers_of(*way)
        check(len(found) == 3 and all(abs(a - b) < 2e-6 for a, b in zip(found, expected)),
              f"{size} ranks: {text} instead of {expected}")
    # y > x / 2 + 1 / 4, as far as these samples tell.
    check(abs(found[0] / found[1] + 0.5) < 0.1 and abs(found[2] / found[1] + 0.25) < 0.1, f"{size} ranks learn: {text}")
    for way in ([programs["evaluate"], "--ranks", str(size)], [tuttirun, "-n", str(size), programs["evaluate"]]):
        text, found = numbers_of(*way)
        seen.add(text)
        check(all(abs(a - b) < 1e-9 for a, b in zip(found, evaluated())), f"{text} instead of {evaluated()}")
check(len(seen) == 1, f"not the same means on 1, 2 and 4 ranks: {seen}")

# A rank dies while the others wait for it, long before their deadline: the job ends, says which it was, and has no result.
for name, passes in ("average", 3), ("evaluate", 1):
    dying = f"{BUILD}/tests/dying_{name}"
    for size, rank in (1, 0), (2, 1), (4, 0), (4, 3):
        for way in [dying, "--ranks", str(size)], [tuttirun, "-n", str(size), dying]:
            said = subprocess.run(way, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
                                  env={**os.environ, "DIES": f"{rank}:{passes}", "TUTTI_TIMEOUT_MS": "1000000"})
            check(said.returncode == 137 and not said.stdout and
                  re.search(rf"rank {rank} \(pid \d+\) was killed by signal 9", said.stderr),
                  f"{way}, rank {rank} killed: code {said.returncode}, {said.stdout}, {said.stderr}")

# One rank of --ranks 1 is the program alone; a wrong number, or a launcher's, is refused with a message.
check(numbers_of(programs["average"]) == numbers_of(programs["average"], "--ranks=1"), "alone is not one rank")
for wrong in "0", "-1", "4097", "two", "":
    said = subprocess.run([programs["average"], "--ranks", wrong], capture_output=True, text=True, check=False)
    check(said.returncode == 2 and f"--ranks '{wrong}' is not possible: it is a number from 1 to 4096" in said.stderr,
          f"--ranks {wrong}: {said.returncode}, {said.stderr}")
check(numbers_of(tuttirun, "-n", "2", programs["average"], "--ranks", "2")[1] == numbers_of(
    tuttirun, "-n", "2", programs["average"])[1], "the launcher's number is not taken")
said = subprocess.run([tuttirun, "-n", "2", programs["average"], "--ranks", "3"], capture_output=True, text=True, check=False)
check(said.returncode == 2 and "--ranks 3 starts ranks where no launcher does, and one has started 2" in said.stderr,
      f"another number than the launcher's: {said.returncode}, {said.stderr}")
