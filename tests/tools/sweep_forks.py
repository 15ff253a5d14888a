"""Runs tutti-sweep in forks of this process, which has loaded Python's modules, and Optuna's, once for all of them."""
import contextlib
import glob
import json
import os
import select
import shlex
import signal
import sys
import tempfile
import time
import traceback
import unittest

sys.dont_write_bytecode = True
SOURCE, BUILD = os.environ["SOURCE_DIR"], os.environ["BUILD_DIR"]
sys.path[:0] = [os.path.join(SOURCE, "perf"), os.path.join(SOURCE, "tools", "tutti-sweep")]
from tutti_sweep import main  # noqa: E402

FAKE = shlex.quote(os.path.join(BUILD, "tests", "fake_train_main"))     # a word of the lines that Sweeps.start splits
LIMIT_S = 120


def run_here(words):
    """In the fork: the exit code."""
    signal.alarm(LIMIT_S)
    for fd, name in ((1, "out"), (2, "err")):
        opened = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(opened, fd)
        os.close(opened)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
    try:
        return main.run(words, "", "0")
    except BaseException:
        traceback.print_exc()
        return 70


class Sweeps(unittest.TestCase):
    """Each in a folder of its own, which is the current one."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        os.environ["SWEEP_TEST"] = os.getcwd()
        self.space("one.json", lr={"_type": "uniform", "_value": [0, 1]})

    def space(self, name, **specs):
        with open(name, "w", encoding="utf-8") as file:
            json.dump(specs, file)

    def start(self, *words, before=None):
        """The fork. words: parts of a command line, as a shell reads it, and tuples of words. before: what it calls first."""
        words = [part for word in words for part in (shlex.split(word) if isinstance(word, str) else word)]
        pid = os.fork()
        if pid == 0:
            ended = 70
            try:
                if before:
                    before()
                ended = run_here(words)
                sys.stdout.flush()
            finally:
                os._exit(ended)
        return pid

    def wait(self, pid):
        """The exit code, or minus the signal. What it said is in self.out and self.err."""
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.out, self.err = text_of("out"), text_of("err")
        return code

    def sweep(self, code, *words, before=None):
        self.assertEqual(self.wait(self.start(*words, before=before)), code, f"{words}: {self.err}")

    def until(self, is_so, pid=None):
        """pid: the fork without which it can no longer become so."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            ended = pid is not None and has_ended(pid)
            if is_so():
                return
            if ended or time.monotonic() > deadline:
                self.fail(f"{'it ended before' if ended else 'never so'}: {text_of('err')}")
            select.select([], [], [], 0.01)

    def events(self, out, kind):
        with open(os.path.join(out, "journal.jsonl"), encoding="utf-8") as file:
            return [event for event in map(json.loads, file) if event["event"] == kind]

    def assert_counted_once(self, out, count):
        self.assertEqual(sorted(event["trial"] for event in self.events(out, "end")), list(range(count)))

    def assert_none_left(self):
        """Of what trials have started: it was killed, and goes within a moment."""
        variable = f"SWEEP_TEST={os.getcwd()}".encode()
        self.until(lambda: not marked(variable))


def has_ended(pid):
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def text_of(name):
    """Nothing, where there is no such file yet."""
    with contextlib.suppress(FileNotFoundError), open(name, encoding="utf-8") as file:
        return file.read()
    return ""


def marked(variable):
    """The processes that were started with this in their environment."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                found += [path] if variable in file.read().split(b"\0") else []
        except OSError:
            continue          # it has gone, or is another user's
    return found
