#!/usr/bin/env python3
"""torch_suite.py BACKEND FILE [NAME...]: torch's own distributed_test against a backend, tutti or gloo.

tutti-as-gloo: tutti takes the tests that are only for a backend called gloo. WORLD_SIZE ranks a test, 3 if not set.
FILE gets a line for each test: pass, skip or fail, its name, and why. NAME: only tests whose names have it. Ranks are
forked. Needs expecttest, and takes minutes."""

import os
import signal
import sys
import tempfile
import unittest

LIMIT_S = 150  # a test's

backend, out, names = sys.argv[1], sys.argv[2], sys.argv[3:]
poses = backend == "tutti-as-gloo"
if poses:
    backend = "gloo"
os.environ.setdefault("WORLD_SIZE", "3")
os.environ.update(BACKEND=backend, TEMP_DIR=tempfile.mkdtemp(), OMP_NUM_THREADS="1", MASTER_ADDR="127.0.0.1")

import torch  # noqa: E402

if torch.__version__.startswith("1.") and sys.version_info >= (3, 11):  # which refuses such objects as defaults
    import dataclasses

    make = dataclasses._process_class

    def hashable(*arguments, **named):
        made = make(*arguments, **named)
        if made.__hash__ is None:
            made.__hash__ = object.__hash__
        return made

    dataclasses._process_class = hashable

torch.set_num_threads(1)
if backend == "tutti" or poses:
    import tutti.torch  # noqa: F401
from torch.testing._internal import common_distributed  # noqa: E402

features = getattr(common_distributed.DistTestCases, "backend_feature", {})
for feature in ("ddp", "subgroup", "plugin"):
    if backend == "tutti" and feature in features:
        features[feature] = set(features[feature]) | {backend}

from torch.testing._internal.distributed import distributed_test  # noqa: E402
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402


if poses:
    dist, begin = torch.distributed, torch.distributed.init_process_group

    def begin_with_tutti(backend=None, *arguments, **named):
        return begin("tutti" if backend in (None, "gloo") else backend, *arguments, **named)

    dist.init_process_group = begin_with_tutti


class Suite(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


class TooLong(BaseException):
    pass


def too_long(*_):
    raise TooLong()


def last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def run_one(name: str) -> tuple:
    test, result = Suite(name), unittest.TestResult()
    signal.alarm(LIMIT_S)
    try:
        test.run(result)
    except TooLong:
        return "fail", f"no end in {LIMIT_S} s"
    finally:
        signal.alarm(0)
        for process in getattr(test, "processes", []):
            if process.is_alive():
                process.kill()
            process.join()
    if result.skipped:
        return "skip", last_line(result.skipped[0][1])
    bad = result.errors + result.failures
    if bad:
        lines = [line for line in bad[0][1].splitlines() if "Error" in line or "Exception" in line]
        return "fail", " / ".join(lines[-2:])[:400]
    return "pass", ""


def main() -> int:
    signal.signal(signal.SIGALRM, too_long)
    distributed_test.BACKEND = backend
    counts = {"pass": 0, "skip": 0, "fail": 0}
    tests = [n for n in unittest.TestLoader().getTestCaseNames(Suite) if not names or any(part in n for part in names)]
    with open(out, "w") as file:
        for name in tests:
            verdict, why = run_one(name)
            counts[verdict] += 1
            print(verdict, name, why, file=file, flush=True)
    print(f"torch {torch.__version__}, {sys.argv[1]}, {os.environ['WORLD_SIZE']} ranks: {counts}")
    return int(counts["fail"] > 0)


if __name__ == "__main__":
    sys.exit(main())
