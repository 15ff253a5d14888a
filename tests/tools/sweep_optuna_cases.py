"""What tutti-sweep leaves to Optuna: TPE, and early stopping."""
import json
import os
import statistics
import unittest

from sweep_forks import FAKE, Sweeps
from tutti_sweep import methods

methods.load("the test")       # once, and not in each fork
BY_TPE = "space.json --method tpe --seed 3"
TRAINER = f"-- {FAKE} {{dir}} {{n}} {{lr}} {{c}}"


class Tpe(Sweeps):
    def setUp(self):
        super().setUp()
        self.space("space.json", lr={"_type": "uniform", "_value": [0, 1]}, c={"_type": "choice", "_value": ["x", 1, True]},
                   n={"_type": "quniform", "_value": [2, 6, 2]})

    def starts(self, out):
        found = {event["trial"]: event for event in self.events(out, "start")}
        return [found[number] for number in sorted(found)]

    def test_a_seed_gives_the_trials_also_with_restarts_and_they_become_better(self):
        line = f"{BY_TPE} --parallel 1 --trials 24"
        self.sweep(0, f"{line} --out a {TRAINER}")
        self.assert_counted_once("a", 24)
        values = [event["value"] for event in self.events("a", "end")]
        self.assertLess(statistics.mean(values[14:]), statistics.mean(values[:10]) - 0.05, values)
        for most in (4, 13):
            self.sweep(0, f"{line} --trials {most} --out c {TRAINER}")
        self.forget_the_last_end("c")
        self.sweep(0, f"{line} --out c {TRAINER}")
        self.assertEqual(self.starts("a"), self.starts("c"))
        self.assert_counted_once("c", 24)

    def forget_the_last_end(self, out):
        """As of a trial that was begun, and not ended."""
        with open(os.path.join(out, "journal.jsonl"), "r+", encoding="utf-8") as file:
            *lines, last = file.readlines()
            self.assertIn('"end"', last)
            file.seek(0)
            file.truncate()
            file.writelines(lines)

    def test_of_several_at_once_each_knows_the_same_others(self):
        line = f"{BY_TPE} --parallel 3 --trials 18"
        self.sweep(0, f"{line} --out p {TRAINER}")
        self.assertRegex(self.err, ", 3 at once\n")
        for most in (14, 18):
            self.sweep(0, f"{line} --trials {most} --out q {TRAINER}")
        self.assertEqual(self.starts("p"), self.starts("q"))

    def test_a_dry_run_knows_those_before_the_first_result(self):
        self.sweep(0, f"{BY_TPE} --trials 24 --dry-run {TRAINER}")
        self.assertEqual(self.out.count("\n"), 10, self.out)
        self.assertIn("tutti-sweep: those behind the first 10 depend on what these bring.\n", self.err)

    def test_with_early_stopping_each_number_counts_once(self):
        self.sweep(0, f"{BY_TPE} --early-stop hyperband --max-steps 6 --parallel 3 --trials 15 --out d {TRAINER} pause:10")
        self.assert_counted_once("d", 15)
        for event in self.events("d", "end"):               # one that is stopped takes no other with it
            self.assertIn(event["state"], ("done", "pruned"))
        self.sweep(0, f"{BY_TPE} --mode max --early-stop asha --trials 6 --out e {TRAINER}")
        self.assert_counted_once("e", 6)


class EarlyStop(Sweeps):
    """Of trials that wait at a step, the worse ones get SIGTERM; the best is never stopped."""

    def setUp(self):
        super().setUp()
        self.space("choices.json", lr={"_type": "choice", "_value": [0.3, 0.9, 0.7, 0.8, 0.35, 1, 0.6, 0.65, 0.5]})

    def stops_the_worse(self, rule):
        line = f"choices.json --method grid --parallel 1 --early-stop {rule} --grace 20 --out a -- {FAKE} {{dir}} 18 {{lr}} pause:15 child"
        self.sweep(0, line)
        self.assert_counted_once("a", 9)
        self.assertRegex(self.out, "\nThe best is trial 0: ")
        self.assertRegex(self.out, r"\ntrial [1-8] pruned: stopped at step \d+\n")
        self.assertNotIn("\ntrial 0 pruned", self.out)
        for event in self.events("a", "end"):
            if event["state"] == "pruned":
                self.assertLess(event["step"], 17)
                self.assertEqual(self.losses("a", event["trial"])[event["step"]], event["value"])
        with open("a/report.html", encoding="utf-8") as file:
            self.assertIn("stopped early", file.read())
        self.assert_none_left()
        table = self.out
        self.sweep(0, line)
        self.assertEqual(self.out, table)

    def losses(self, out, trial):
        with open(f"{out}/trial_{trial:04d}/metrics.jsonl", encoding="utf-8") as file:
            return {row["step"]: row["loss"] for row in map(json.loads, file)}

    def test_asha(self):
        self.stops_the_worse("asha --min-steps 2")

    def test_hyperband(self):
        self.stops_the_worse("hyperband --min-steps 2 --max-steps 18")

    def test_one_that_ignores_sigterm_is_killed_and_was_stopped_all_the_same(self):
        self.sweep(0, f"choices.json --method grid --trials 2 --parallel 1 --early-stop asha --grace 0.1 --out a "
                      f"-- {FAKE} {{dir}} 30 {{lr}} pause:15 stay")
        self.assertRegex(self.out, "\ntrial 1 pruned: stopped at step 0\n")
        self.assert_none_left()


if __name__ == "__main__":
    unittest.main()
