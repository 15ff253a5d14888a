"""Whole sweeps: which trials a seed gives, what fails and why, cores, test mode, wrong command lines, the page."""
import json
import os
import re
import unittest
import xml.etree.ElementTree as ElementTree

from sweep_forks import FAKE, Sweeps, text_of
from tutti_sweep import resources

TRAINER = f"-- {FAKE} {{dir}} 4 {{lr}}"


def rows_of(table):
    """The lines of trials, as words; the best is the first."""
    return [line.split() for line in table.split("\n")[1:] if re.match(r" *\d+ +(done|pruned|failed) ", line)]


class Whole(Sweeps):
    def starts(self, out):
        return sorted((event["trial"], event["params"]["lr"]) for event in self.events(out, "start"))

    def said(self, pattern, text=None):
        self.assertRegex(self.err if text is None else text, f"(?m){pattern}")


class Seeds(Whole):
    def setUp(self):
        super().setUp()
        self.sweep(0, f"one.json --seed 5 --trials 6 --out a {TRAINER}")

    def test_the_same_one_the_same_trials_the_best_first(self):
        self.said("^tutti-sweep: 6 trials by random, seed 5, ")
        self.said(r"^tutti-sweep: trial [0-5]: loss 0\.\d*, [\d.]* s: lr=[\d.e-]* \(6 of 6\)$")
        rows = rows_of(self.out)
        self.assertEqual(len(rows), 6)
        losses = [float(row[2]) for row in rows]
        self.assertEqual(losses, sorted(losses))
        self.said(rf"^The best is trial {rows[0][0]}: {FAKE} a/trial_000{rows[0][0]} 4 {rows[0][5]}$", self.out)
        self.said(r"^a/report\.html shows it\.$", self.out)
        self.assertEqual(json.loads(text_of(f"a/trial_000{rows[2][0]}/params.json")), {"lr": float(rows[2][5])})
        self.sweep(0, f"one.json --seed 5 --trials 6 --parallel 1 --out b {TRAINER}")
        self.assertEqual(self.starts("a"), self.starts("b"))
        self.sweep(0, f"one.json --seed 6 --trials 6 --out c {TRAINER}")
        self.assertNotEqual(self.starts("a"), self.starts("c"))
        self.sweep(0, f"one.json --trials 1 --out d {TRAINER}")
        self.said("^tutti-sweep: 1 trial by random, seed \\d+, ")

    def test_the_same_command_goes_on_with_more_trials_too(self):
        table = self.out
        self.sweep(0, f"one.json --seed 5 --trials 6 --out a {TRAINER}")
        self.assertEqual(self.out, table)
        self.said("; 6 ended before$")
        self.sweep(0, f"one.json --trials 8 --out a {TRAINER}")
        self.assert_counted_once("a", 8)
        self.said("^tutti-sweep: 8 trials by random, seed 5, ")

    def test_another_command_space_or_seed_is_refused(self):
        self.space("two.json", lr={"_type": "uniform", "_value": [0, 2]})
        for name, there, now, line in (("command", rf".*fake_train_main'? '\{{dir\}}' 4 '\{{lr\}}'$", r".* 5 '\{lr\}'$",
                                        f"one.json --out a -- {FAKE} {{dir}} 5 {{lr}}"),
                                       ("space", r".*\[0, 1\]", r".*\[0, 2\]", f"two.json --out a {TRAINER}"),
                                       ("--seed", "5$", "9$", f"one.json --seed 9 --out a {TRAINER}")):
            self.sweep(1, line)
            self.assertEqual(self.err.count("\n"), 4)
            self.said(rf"^tutti-sweep: a has a sweep with another {name}\.$")
            self.said(f"^  there: {there}")
            self.said(f"^  now:   {now}")

    def test_test_mode_has_the_best_values_and_does_not_search(self):
        best = rows_of(self.out)[0]
        for words in ("-ts {best}/params.json", "-sr -ts {best}/params.json", "-ts {best}/params.json --search"):
            self.sweep(0, f"one.json {words} --out a -- echo tested {{checkpoint}} {{lr}} {{dir}}")
            self.assertEqual(self.out, f"tested a/trial_000{best[0]}/params.json {best[5]} a/test\n", words)
        self.said(r"^tutti-sweep: test mode \(-ts\) wins over search \(-sr\): nothing is searched\.$")
        self.sweep(7, "one.json -ts one.json --set lr=0.125 --out none --",
                   ("sh", "-c", "[ {lr} = 0.125 ] && grep -q 0.125 {params} && exit 7 # {checkpoint}"))
        self.sweep(0, "one.json -ts one.json --set lr=1 --out none --", ("sh", "-c", "{ yes; echo $? >&2; } | head -n 1 # {checkpoint}"))
        self.said("^141$")                                  # of SIGPIPE, which Python ignores and programs do not
        self.assert_counted_once("a", 6)
        self.sweep(1, f"one.json --trials 2 --out g -- sh {{lr}} {{dir}}")
        for message, line in (("none/journal.jsonl could not be read: No such file", "-ts one.json --out none -- echo {lr} {checkpoint}"),
                              ("g has no trial with a result", "-ts one.json --out g -- echo {lr} {checkpoint}"),
                              (r"there is no checkpoint a/absent\.$", "-ts a/absent --out a -- echo {lr} {checkpoint}"),
                              (r"the command has no \{checkpoint\}", "-ts one.json --out a -- echo {lr}")):
            os.makedirs("none", exist_ok=True)
            self.sweep(1, f"one.json {line}")
            self.said(f"^tutti-sweep: {message}")

    def test_the_page_is_whole_and_asks_no_network(self):
        tree = self.page("a")
        titles = [element.text or "" for element in tree.iter("title")]
        self.assertEqual(sum(bool(re.fullmatch(r"trial \d: lr 0\.\d+, loss 0\.\d+", title)) for title in titles), 6, titles)
        self.assertEqual(sum(title.startswith("trial 5: step ") for title in titles), 4, titles)
        self.assertIn("The best is trial", "".join(tree.itertext()))

    def page(self, out):
        text = text_of(f"{out}/report.html")
        self.assertIsNone(re.search(r"(?:https?|ftp|file)://|\b(?:src|href|action)\s*=|@import|\burl\(|\bfetch\(", text))
        return ElementTree.fromstring(text)


class Failures(Whole):
    def test_they_have_reasons_and_are_never_the_best(self):
        self.space("words.json", w={"_type": "choice", "_value": ["nan:3", "exit:7", "nan:9"]})
        self.sweep(0, f"words.json --method grid --out f -- {FAKE} {{dir}} 4 0.5 {{w}}")
        self.said("^trial 0 failed: loss is nan at step 3$", self.out)
        self.said(r"^trial 1 failed: it ended with exit code 7; its last line: the loss is 0\.45$", self.out)
        self.said("^The best is trial 2: ", self.out)
        rows = ["".join(row.itertext()) for row in ElementTree.fromstring(text_of("f/report.html")).iter("tr")]
        self.assertTrue(any("exit code 7" in row for row in rows) and any("loss is nan at step 3" in row for row in rows), rows)

    def fails(self, reason, *words):
        self.sweep(1, "one.json --trials 1 --out g", *words)
        self.said(f"^trial 0 failed: {reason}$", self.out)
        self.said(r"^No trial has a result\.$", self.out)

    def test_a_signal(self):
        self.fails("it was killed by signal 9, Killed; its last line: no GPU", "--", ("sh", "-c", "echo no GPU >&2; kill -9 $$ {lr} {dir}"))

    def test_no_row(self):
        self.fails(r"it has written no row of metrics\.jsonl in its \{dir\}", "--", ("sh", "-c", ": {lr} {dir}"))

    def test_another_metric(self):
        self.fails(r"its metrics\.jsonl has no los, but loss; did you mean los\w+\?", f"--metric los {TRAINER}")

    def test_one_that_hangs(self):
        open("closed", "w", encoding="ascii").close()
        self.fails(r"it ran longer than 0\.2 s", f"--trial-timeout 0.2 --grace 0.2 {TRAINER} step:closed stay child")
        self.assert_none_left()

    def test_numbers_that_are_far_off_do_not_end_the_sweep(self):
        self.space("far.json", far={"_type": "choice", "_value": ["1e300", "1", "1" + 400 * "0"]})
        rows = r'for loss in 0.5 $1 -1e308 1e308 0.25; do printf "{\"step\":%d,\"loss\":%s}\n" $((step++)) $loss; done >$0/metrics.jsonl'
        self.sweep(0, "far.json --method grid --out far --", ("bash", "-c", rows, "{dir}", "{far}"))
        self.said(r"^far/report\.html shows it\.$", self.out)
        self.assertEqual([row[1] for row in rows_of(self.out)], ["done"] * 3)

    def test_the_last_row_counts_without_a_newline_too(self):
        self.sweep(0, "one.json --trials 1 --out g --",
                   ("sh", "-c", r"""printf '{"step":0,"loss":3}\n{"step":1,"loss":2}' >{dir}/metrics.jsonl # {lr}"""))
        self.assertEqual(rows_of(self.out)[0][2:4], ["2", "1"])

    def test_the_greatest_of_all_rows(self):
        self.sweep(0, f"one.json --trials 1 --value best --mode max --out j -- {FAKE} {{dir}} 4 0.3 {{lr}}")
        self.assertEqual(rows_of(self.out)[0][:4], ["0", "done", "1", "3"])


class Resources(Whole):
    def test_a_grid_that_is_not_started(self):
        self.space("grid.json", lr={"_type": "loguniform", "_value": [0.01, 1]}, n={"_type": "randint", "_value": [3, 5]})
        self.sweep(0, f"grid.json --method grid --points 3 --out dry --dry-run -- {FAKE} {{dir}} {{n}} {{lr}} {{trial}}")
        points = [(3, 0.01), (4, 0.01), (3, 0.1), (4, 0.1), (3, 1.0), (4, 1.0)]
        expected = [f"{FAKE} dry/trial_{k:04d} {n} {lr} {k}" for k, (n, lr) in enumerate(points)]
        self.assertEqual(self.out.split("\n")[:-1], expected)
        self.assertFalse(os.path.exists("dry"))

    def test_side_by_side_each_has_cores_of_its_own(self):
        self.sweep(0, f"one.json --trials 2 --parallel 2 --out l {TRAINER} cpus")
        first, second = (set(text_of(f"l/trial_000{k}/cpus").split()) for k in (0, 1))
        self.assertTrue(len(resources.cores()) == 1 or not first & second, (first, second))

    def test_within_the_affinity(self):
        cpu = min(os.sched_getaffinity(0))
        self.sweep(0, f"one.json --trials 2 --out m {TRAINER} cpus", before=lambda: os.sched_setaffinity(0, {cpu}))
        self.said(", 1 at once$")
        self.assertEqual(text_of("m/trial_0000/cpus").split(), [str(cpu)])

    def test_more_than_the_machine_has_is_said_or_refused(self):
        self.sweep(0, f"one.json --trials 1 --cores-per-trial 1000 --out n {TRAINER}")
        self.said(r"^tutti-sweep: 1 trial of 1000 cores must do with \d+ cores? here\.$")
        self.sweep(1, f"one.json --trials 2 --parallel 2 --memory-per-trial 1000T --out o {TRAINER}")
        self.said(r"^tutti-sweep: 2 trials of 1024000.0 GiB need more than the .* choose a smaller --parallel\.$")
        self.sweep(0, f"one.json --trials 1 --memory-per-trial {int(resources.memory_left() * 0.7) >> 20}M --out p {TRAINER}")
        self.said(", 1 at once$")


class Lines(Whole):
    def test_wrong_ones(self):
        asha = "there is no 'asha', but grid, random, tpe; it is a rule for stopping trials: --early-stop asha"
        for message, line in ((r"there is no option --paralel; did you mean --parallel\?", f"one.json --paralel 2 {TRAINER}"),
                              ("there is no option -n; the command stands behind --", "one.json tuttirun -n 2 train --lr {lr}"),
                              (asha, f"one.json --method asha {TRAINER}"),
                              (r"there is no 'rnadom', .*; did you mean random\?", f"one.json --method rnadom {TRAINER}"),
                              ("'0' is no whole number from 1 to", f"one.json --trials 0 {TRAINER}"),
                              ("2X is no size: ", f"one.json --memory-per-trial 2X {TRAINER}"),
                              ("it needs a command behind --", "one.json --trials 3"),
                              ("it needs a space.json", f"--trials 3 {TRAINER}"),
                              ("'more' is too much", f"one.json more {TRAINER}"),
                              ("--set rl=1: it is NAME=VALUE, and the space has lr", "one.json -ts one.json --set rl=1 -- echo {lr} {checkpoint}"),
                              ("--set goes with -ts", "one.json --set lr=1 -- echo {lr} {dir}")):
            self.sweep(2, line)
            self.assertEqual(self.err.count("\n"), 1, self.err)
            self.said(f"^tutti-sweep: .*{message}.*; tutti-sweep --help says more\\.$")

    def test_what_is_not_there(self):
        self.sweep(1, f"absent.json {TRAINER}")
        self.said(r"^tutti-sweep: absent.json could not be read: No such file or directory\.$")
        self.sweep(1, "one.json --trials 2 --out started -- ./{trial} {lr} {dir}")
        self.said(r"^tutti-sweep: a trial could not be started: \./[01]: No such file or directory\.$")
        self.sweep(1, f"one.json --out one.json {TRAINER}")
        self.said("^tutti-sweep: one.json/journal.jsonl could not be opened: ")


if __name__ == "__main__":
    unittest.main()
