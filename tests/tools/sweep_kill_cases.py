"""A sweep that is killed, interrupted, or started in a folder where another one works or was."""
import glob
import json
import os
import random
import resource
import signal
import subprocess
import unittest
from unittest import mock

from sweep_forks import FAKE, Sweeps, has_ended, text_of
from tutti_sweep import journal

WAITS = "one.json --seed 5 --trials 3 --parallel 3 --grace 20"
TRAINER = f"-- {FAKE} {{dir}} 3 {{lr}}"


def ignore(number):
    return lambda: signal.signal(number, signal.SIG_IGN)


class Ends(Sweeps):
    def setUp(self):
        super().setUp()
        self.grow("gate", 0)

    def grow(self, name, steps):
        with open(name, "a", encoding="ascii") as file:
            file.write("x" * steps)

    def begin(self, out, *words, before=None):
        """A sweep of three trials, each of which waits behind its first step."""
        os.truncate("gate", 0)
        self.grow("gate", 1)
        pid = self.start(f"{WAITS} --out {out} {TRAINER} step:gate", *words, before=before)
        self.until(lambda: sum(text_of(path).count("\n") for path in glob.glob(f"{out}/trial_000?/metrics.jsonl")) == 3, pid)
        return pid

    def goes_on(self, out, *words):
        self.grow("gate", 3)
        self.sweep(0, f"{WAITS} --out {out} {TRAINER} step:gate", *words)
        self.assert_counted_once(out, 3)
        self.assert_none_left()

    def guard_of(self, pid):
        """The one child that is Python."""
        children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=True).stdout.split()
        [guard] = [int(child) for child in children if os.path.samefile(f"/proc/{child}/exe", "/proc/self/exe")]
        return guard

    def kill(self, pid, number=signal.SIGKILL):
        os.kill(pid, number)
        return self.wait(pid)


class Kills(Ends):
    def count_events(self, out):
        return text_of(f"{out}/journal.jsonl").count("\n")

    def test_at_any_moment(self):
        """Each trial starts a process that would outlive it, and was killed with half a row."""
        seed = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 31)))
        print(f"SEED={seed}")
        pick = random.Random(seed)
        line, longer = "one.json --seed 5 --trials 12 --parallel 3", f"-- {FAKE} {{dir}} 8 {{lr}} child pause:5"
        for _ in range(12):
            pid, events = self.start(f"{line} --out a {longer}"), self.count_events("a") + pick.randrange(7)
            self.until(lambda: self.count_events("a") >= events or has_ended(pid))
            signal.sigtimedwait([signal.SIGUSR1], pick.random() * 0.03)
            self.kill(pid)
            self.assert_none_left()
            for path in glob.glob("a/trial_*/metrics.jsonl"):
                with open(path, "a", encoding="ascii") as file:
                    file.write('{"step":1,"lo')
        print(len(self.events("a", "end")), "of 12 trials had ended")
        self.sweep(0, f"{line} --out a {longer}")
        self.assert_counted_once("a", 12)
        self.assert_none_left()
        self.sweep(0, f"{line} --out b -- {FAKE} {{dir}} 8 {{lr}}")
        results = [sorted((event["trial"], event["state"], event["value"]) for event in self.events(out, "end")) for out in "ab"]
        self.assertEqual(*results)

    def test_of_trials_that_run_none_is_counted_and_no_second_sweep_begins(self):
        pid = self.begin("c", "child")
        with mock.patch.object(journal, "LOCK_S", 0.1):
            other = self.start(f"{WAITS} --out c {TRAINER} step:gate child")
            self.assertEqual(self.wait(other), 1)
        self.assertRegex(self.err, "(?m)^tutti-sweep: another tutti-sweep works in c; ")
        self.kill(pid)
        self.assert_none_left()
        self.assertEqual(self.events("c", "end"), [])
        self.goes_on("c", "child")

    def test_the_guard_alone(self):
        pid = self.begin("g", "child")
        os.kill(self.guard_of(pid), signal.SIGKILL)
        self.grow("gate", 3)
        self.assertEqual(self.wait(pid), 0, self.err)
        self.assert_none_left()

    def test_the_guard_and_then_the_sweep_whose_trials_the_kernel_ends(self):
        pid = self.begin("h")
        os.kill(self.guard_of(pid), signal.SIGKILL)
        self.kill(pid)
        self.assert_none_left()

    def test_without_a_stdin_the_guard_has_the_lock_too(self):
        pid = self.begin("s", before=lambda: os.close(0))
        held = [os.readlink(path) for path in glob.glob(f"/proc/{self.guard_of(pid)}/fd/*")]
        self.assertIn(os.path.abspath("s/journal.jsonl"), held)
        self.kill(pid)
        self.assert_none_left()


class Signals(Ends):
    def test_each_ends_all_and_the_line_that_goes_on_is_said(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            out = number.name
            pid = self.begin(out, "child")
            self.assertEqual(self.kill(pid, number), -number, self.err)
            self.assertRegex(self.err, rf"\ntutti-sweep: {number.name} ended it after 0 of 3 trials\. The same command goes on: "
                                       rf"tutti-sweep one.json --seed 5 .* --out {out} -- .*'\{{lr\}}'")
            self.assert_none_left()
            self.assertEqual(self.out, "")                  # no table of nothing
            self.goes_on(out, "child")

    def test_a_second_one_does_not_wait(self):
        pid = self.begin("e", "stay")
        os.kill(pid, signal.SIGINT)
        self.until(lambda: "\ntutti-sweep: SIGINT: 3 trials got SIGTERM, and 20 s to end; a second signal kills.\n" in text_of("err"),
                   pid)
        self.kill(pid, signal.SIGINT)
        self.assert_none_left()
        self.assertEqual(self.events("e", "end"), [])

    def test_nohup(self):
        pid = self.begin("n", before=ignore(signal.SIGHUP))
        os.kill(pid, signal.SIGHUP)
        self.grow("gate", 3)
        self.assertEqual(self.wait(pid), 0, self.err)
        self.assert_counted_once("n", 3)

    def test_a_parent_that_ignores_sigchld(self):
        self.sweep(0, f"{WAITS} --out i {TRAINER}", before=ignore(signal.SIGCHLD))
        self.assertIn("\nThe best is trial ", self.out)


class Folders(Ends):
    def test_a_full_disk(self):
        """Here a file that may not grow: the trials are ended, and the same command goes on when there is room."""
        line = f"one.json --seed 5 --trials 9 --parallel 2 --out f {TRAINER} child"
        self.sweep(1, line, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)))
        self.assertRegex(self.err, "\ntutti-sweep: f/journal.jsonl could not be written: File too large. The trials were ended; ")
        self.assert_none_left()
        self.sweep(0, line)
        self.assert_counted_once("f", 9)

    def test_metrics_of_another_sweep_are_not_those_of_a_trial(self):
        os.makedirs("o/trial_0001")
        with open("o/trial_0001/metrics.jsonl", "w", encoding="ascii") as file:
            json.dump({"step": 99, "loss": 0.001}, file)
        self.sweep(1, f"{WAITS} --out o {TRAINER}")
        self.assertTrue(self.err.endswith("tutti-sweep: o/trial_0001 is there, and o/journal.jsonl has no such trial: remove it, or "
                                          "choose another --out.\n"), self.err)
        self.assertEqual(self.events("o", "start"), [])


if __name__ == "__main__":
    unittest.main()
