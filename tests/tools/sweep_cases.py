"""Unit tests of tutti-sweep: spaces, commands, metrics, journals, methods and shares of cores."""
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
SOURCE = os.environ["SOURCE_DIR"]
sys.path[:0] = [os.path.join(SOURCE, "perf"), os.path.join(SOURCE, "tools", "tutti-sweep")]
from tutti_sweep import command, journal, methods, metrics, resources, running, space  # noqa: E402
from tutti_sweep.refused import Refused  # noqa: E402


class InFolder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def space_of(self, **specs):
        return space.read(self.write("space.json", json.dumps(specs)))[1]


def spec(kind, *value):
    return {"_type": kind, "_value": list(value)}


class Spaces(InFolder):
    def refused(self, text, *words):
        path = self.write("space.json", text)
        with self.assertRaises(Refused) as caught:
            space.read(path)
        self.assertIn(path, str(caught.exception))
        for word in words:
            self.assertIn(word, str(caught.exception))

    def refused_spec(self, kind, value, *words):
        self.refused(json.dumps({"lr": {"_type": kind, "_value": value}}), '"lr"', *words)

    def test_values_of_all_types_lie_where_they_must(self):
        found = self.space_of(c=spec("choice", "a", 2, True), u=spec("uniform", -1, 1), l=spec("loguniform", 1e-5, 1e-1),
                              q=spec("quniform", 16, 64, 16), h=spec("quniform", 0, 1, 0.25), r=spec("randint", 3, 6))
        seen = {name: set() for name in found}
        for number in range(500):
            for name, value in space.values_at(found, methods.Random(found, 7).point(number)).items():
                seen[name].add(value)
        self.assertEqual(seen["c"], {"a", 2, True})
        self.assertEqual(seen["q"], {16, 32, 48, 64})
        self.assertTrue(all(isinstance(value, int) for value in seen["q"]))
        self.assertEqual(seen["h"], {0, 0.25, 0.5, 0.75, 1})
        self.assertEqual(seen["r"], {3, 4, 5})                       # as NNI: 6 is not in it
        self.assertTrue(-1 <= min(seen["u"]) < -0.9 < 0.9 < max(seen["u"]) <= 1)
        self.assertTrue(1e-5 <= min(seen["l"]) < 2e-5 < 5e-2 < max(seen["l"]) <= 1e-1)
        below = sum(value < 1e-3 for value in seen["l"])
        self.assertTrue(200 < below < 300, f"{below} of 500 are below the middle of the logarithms")

    def test_multiples_that_the_ends_are_not(self):
        found = self.space_of(q=spec("quniform", 1, 10, 4))["q"]
        self.assertEqual([found.value_at(i) for i in range(found.count)], [1, 4, 8])
        found = self.space_of(q=spec("quniform", 0.3, 0.9, 0.3))["q"]
        self.assertEqual([found.value_at(i) for i in range(found.count)], [0.3, 0.6, 0.9])

    def test_what_is_wrong_is_named(self):
        self.refused("{", "no JSON")
        self.refused("[1]", "has no parameters")
        self.refused("{}", "has no parameters")
        self.refused('{"lr": {"_type": "choice", "_value": [1]}, "lr": 1}', '"lr" is there twice')
        self.refused('{"lr": [1, 2]}', '"lr"', '"_type"')
        self.refused('{"a b": {"_type": "choice", "_value": [1]}}', '"a b"', "name")
        self.refused('{"dir": {"_type": "choice", "_value": [1]}}', '"dir"', "none of")
        self.refused_spec("logunifrom", [1, 2], "did you mean loguniform?")
        self.refused_spec("normal", [0, 1], "normal is one of NNI's", "there are choice, uniform")
        self.refused_spec("loguniform", [0, 1], "not above 0")
        self.refused_spec("uniform", [1, 1], "low 1 is not below its high 1")
        self.refused_spec("uniform", [1], "2 numbers, [low, high]", "is [1]")
        self.refused_spec("uniform", ["1e-3", 1], "2 numbers")
        self.refused_spec("uniform", [float("nan"), 1], "2 numbers")
        self.refused_spec("quniform", [1, 2], "3 numbers, [low, high, q]")
        self.refused_spec("quniform", [1, 2, 0], "q 0 is not above 0")
        self.refused_spec("quniform", [0, 1e9, 1e-3], "1000000 is the most")
        self.refused_spec("quniform", [0, 1e308, 1e-300], "too small beside 0 and 1e+308")
        self.refused_spec("uniform", [0, 10 ** 400], "2 numbers")
        self.refused_spec("uniform", [-1.5e308, 1.5e308], "further than a number can say")
        self.refused_spec("randint", [0.5, 2], "whole numbers")
        self.refused_spec("choice", [], "a list of what there is to choose from")
        self.refused_spec("choice", [[1]], "[1]", "no text, number")
        self.refused_spec("choice", [1, 1], "twice")
        self.refused_spec("choice", [float("nan")], "NaN", "no text, number")
        self.refused_spec("choice", ["a\0b"], "no command line can have")
        self.refused_spec("choice", ["\ud800"], "no command line can have")
        self.refused_spec("choice", [{"_name": "deep", "x": {}}], "parameters of its own")
        with self.assertRaisesRegex(Refused, "absent could not be read: No such file"):
            space.read("absent")


class Methods(InFolder):
    def test_a_seed_and_a_number_give_one_point(self):
        found = self.space_of(l=spec("loguniform", 1e-5, 1e-1), c=spec("choice", 1, 2, 3))
        one = [methods.Random(found, 5).point(n) for n in range(20)]
        again = [methods.Random(found, 5).point(n) for n in reversed(range(20))][::-1]
        self.assertEqual(one, again)
        self.assertNotEqual(one, [methods.Random(found, 6).point(n) for n in range(20)])
        self.assertEqual(json.loads(json.dumps(one)), one)         # a journal has the same bits

    def test_a_grid_has_each_combination_once(self):
        found = self.space_of(lr=spec("loguniform", 1e-3, 1e-1), c=spec("choice", "a", "b"), r=spec("randint", 0, 2))
        grid = methods.Grid(found, 3)
        points = [tuple(space.values_at(found, grid.point(n)).values()) for n in range(grid.count)]
        self.assertEqual(len(set(points)), 12)
        self.assertEqual(points[:3], [(0.001, "a", 0), (0.001, "a", 1), (0.001, "b", 0)])
        self.assertEqual({lr for lr, _, _ in points}, {0.001, 0.01, 0.1})
        with self.assertRaisesRegex(Refused, "--points N"):
            methods.Grid(found, None)


class Commands(unittest.TestCase):
    SPACE = {"lr": None, "opt/name": None}

    def refused(self, words, message):
        with self.assertRaisesRegex(Refused, message):
            command.check(words, self.SPACE)

    def test_places_are_filled(self):
        words = ["sh", "--lr={lr}", "{opt/name}{trial}", "{{lr}}", '{"a":{"b":{lr}}}', "{}", "$x{1}"]
        filled = command.fill(words, {"lr": 0.001, "opt/name": True, "trial": 3})
        self.assertEqual(filled, ["sh", "--lr=0.001", "true3", "{lr}", '{"a":{"b":0.001}}', "{}", "$x{1}"])

    def test_what_is_wrong_is_named(self):
        command.check(["sh", "{lr}", "{opt/name}", "{dir}"], self.SPACE)
        command.check(["sh", "{params}"], self.SPACE)
        command.check(["./train_{opt/name}", "{lr}", "{dir}"], self.SPACE)
        self.refused(["sh", "{lr}", "{opt/name}"], "has no {dir}")
        self.refused(["sh", "{lr}", "{dir}"], "does not use {opt/name}")
        self.refused(["sh", "{opt/nam}", "{lr}", "{opt/name}", "{dir}"], "has {opt/nam}.*did you mean opt/name")
        self.refused(["sh", "{LR}", "{opt/name}", "{dir}"], r"has \{LR\}.*did you mean lr\?$")
        self.refused(["sh", "{checkpoint}", "{lr}", "{opt/name}", "{dir}"], "has {checkpoint}")
        self.refused(["/nowhere/sh", "{params}"], "there is no program /nowhere/sh")

    def test_ranks(self):
        for words, ranks in (("tuttirun -n 4 a", 4), ("/x/tuttirun --ranks=2 a", 2), ("mpirun -np 3 a -n 7", 3), ("a -n 7", 1),
                             ("a --ranks 7", 7), ("tuttirun -n auto a", None), ("tuttirun -n {ranks} a", None), ("tuttirun a", 1),
                             ("tuttirun -n2 a", 2), ("tuttirun -n 2 --local-ranks 3 a", 6), ("tuttirun -g 0,1,2 a", 3),
                             ("tuttirun -g 0 1 -- a", 2), ("tuttirun -n 3 a --devices 5", 3), ("a -g 0 1 b.txt", 2),
                             ("a -g0,1,2", 3), ("a --gpus=4,5", 2), ("a --devices 4", 4), ("a --devices=2 -g 0 1", 2),
                             ("a --devices auto", None), ("a --device 4 -grid 3", 1), ("srun -n4 a", 4)):
            self.assertEqual(command.ranks_of(words.split()), ranks, words)
        self.assertEqual(command.ranks_of(["sh", "-c", "cd x && tuttirun -n 4 ./a >b"]), 4)


class Metrics(InFolder):
    def series(self, *lines, end="\n"):
        return metrics.Series(self.write("metrics.jsonl", "\n".join(lines) + end), "loss")

    def result(self, *lines, which="last", mode="min"):
        series = self.series(*lines)
        series.read_on()
        return series.result(which, mode)

    def test_results(self):
        rows = ['{"step":0,"time":1.5,"loss":3}', '{"step":1,"loss":1.5}', '{"step":2,"norm":1}', '{"step":3,"loss":2}']
        self.assertEqual(self.result(*rows), (2, None))
        self.assertEqual(self.result(*rows, which="best"), (1.5, None))
        self.assertEqual(self.result(*rows, which="best", mode="max"), (3, None))
        self.assertEqual(self.result(*rows, '{"step":1,"loss":9}', which="best"), (2, None))     # the last row of a step counts

    def test_there_is_none(self):
        series = metrics.Series(os.path.join(self.folder.name, "absent"), "loss")
        self.assertEqual(series.read_on(), [])
        self.assertIn("no row of metrics.jsonl", series.result("last", "min")[1])
        self.assertRegex(self.result('{"step":0,"time":1,"los":3,"x":1}')[1], "no loss, but los, x; did you mean los?")
        for word in ('"NaN"', "NaN"):
            self.assertIn("loss is nan at step 7", self.result('{"step":6,"loss":1}', f'{{"step":7,"loss":{word}}}', which="best")[1])
        self.assertIn("loss is inf at", self.result(f'{{"step":7,"loss":{10 ** 400}}}')[1])
        self.assertIn("loss is -inf at", self.result('{"step":7,"loss":"-Infinity"}')[1])
        self.assertEqual(self.result('{"step":6,"loss":"NaN"}', '{"step":7,"loss":1}', which="best"), (1, None))

    def test_damage(self):
        for line, why in (("loss 1", "line 1 .* is no JSON"), ('{"loss":1}', "no step"), ("[1]", "no step"),
                          ('{"step":true,"loss":1}', "no step"), (f'{{"step":{10 ** 400},"loss":1}}', "no step"),
                          ('{"step":1,"loss":"low"}', '"low" for loss')):
            with self.assertRaisesRegex(metrics.Damaged, why):
                self.series(line).read_on()

    def test_random_pieces_make_the_same_rows(self):
        seed = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 31)))
        pick, text = random.Random(seed), "".join(f'{{"step":{i},"loss":{i / 7}}}\n' for i in range(40))
        series, rows, at = self.series(end=""), [], 0
        while at < len(text):
            length = pick.randrange(1, 60)
            with open(series.path, "a", encoding="utf-8") as file:
                file.write(text[at:at + length])
            at += length
            rows += series.read_on()
        self.assertEqual(rows, [(i, i / 7) for i in range(40)], f"SEED={seed}")

    def test_a_row_without_a_newline_counts_at_the_end_of_its_trial_alone(self):
        series = self.series('{"step":0,"loss":1}', '{"step":1,"loss":2}', end="")
        self.assertEqual((series.read_on(), series.read_on(True), series.read_on(True)), ([(0, 1)], [(1, 2)], []))
        series = self.series('{"step":0,"loss":1}', '{"step":1,"lo', end="")
        self.assertEqual(series.read_on(True), [(0, 1)])

    def test_a_file_that_is_written_anew(self):
        series = self.series('{"step":0,"loss":1}', '{"step":1,"loss":2}')
        series.read_on()
        self.write("metrics.jsonl", '{"step":0,"loss":5}\n')
        self.assertEqual(series.read_on(), [(0, 5)])
        self.assertEqual(series.result("last", "min"), (5, None))


class Journals(InFolder):
    def open(self):
        return journal.Journal(self.folder.name)

    def filled(self):
        record = self.open()
        record.write_begin({"seed": 1})
        first = record.write_start(0, {"lr": 0.5}, {"lr": 0.5})
        record.write_start(1, {"lr": 0.25}, {"lr": 0.25})
        first.state, first.value, first.step, first.seconds = journal.DONE, 2.5, 9, 1.25
        record.write_end(first)
        os.close(record.fd)
        return record.path

    def test_it_is_read_back(self):
        self.filled()
        record = self.open()
        self.assertEqual(record.begin, {"seed": 1})
        self.assertEqual([vars(trial) for trial in record.trials],
                         [dict(number=0, point={"lr": 0.5}, params={"lr": 0.5}, state="done", value=2.5, step=9, seconds=1.25, reason=""),
                          dict(number=1, point={"lr": 0.25}, params={"lr": 0.25}, state=None, value=None, step=None, seconds=0.0,
                               reason="")])

    def test_cut_anywhere_it_goes_on(self):
        path = self.filled()
        with open(path, "rb") as file:
            text = file.read()
        for length in range(len(text)):
            with open(path, "wb") as file:
                file.write(text[:length])
            record = self.open()
            self.assertEqual(os.path.getsize(path), text[:length].rfind(b"\n") + 1)
            self.assertEqual(len(record.trials), max(0, text[:length].count(b"\n") - 1) - (text[:length].count(b"\n") == 4))
            os.close(record.fd)

    def test_damage_in_its_middle_is_refused(self):
        for line in ("", "{}", "[]", '{"event":"end","trial":7}', '{"event":"start","trial":5}', '{"event":"walk"}', "\x00"):
            path = self.filled()
            with open(path, "a", encoding="utf-8") as file:
                file.write(line + "\n")
            with self.assertRaisesRegex(Refused, r"damaged: line 5 is no event"):
                self.open()
            os.unlink(path)

    def test_an_end_counts_once(self):
        path = self.filled()
        with open(path, "a+", encoding="utf-8") as file:
            file.seek(0)
            file.write(file.readlines()[-1])
        with self.assertRaisesRegex(Refused, "damaged: line 5"):
            self.open()


class Guards(unittest.TestCase):
    def test_a_group_of_which_a_zombie_is_left_has_gone(self):
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        self.assertTrue(running.is_there(child.pid))
        running.kill_group(child.pid)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        self.assertFalse(running.is_there(child.pid))
        child.wait()
        self.assertFalse(running.is_there(child.pid))


class Resources(unittest.TestCase):
    def test_shares_are_apart_and_all(self):
        cores = [{2 * k, 2 * k + 1} for k in range(7)]
        for parallel in range(1, 8):
            shares = resources.shares(cores, parallel)
            self.assertEqual(sorted(cpu for share in shares for cpu in share), list(range(14)))
            self.assertLessEqual(max(map(len, shares)) - min(map(len, shares)), 2)
        self.assertEqual([len(share) for share in resources.shares(cores[:2], 4)], [2, 2, 2, 2])

    def test_this_machine(self):
        cores = resources.cores()
        self.assertEqual(set().union(*cores), os.sched_getaffinity(0))
        self.assertTrue(1 <= resources.usable_cores(cores) <= len(cores))
        self.assertGreater(resources.memory_left(), 1 << 20)

    def test_bounds(self):
        self.assertEqual([resources.bound(each, None, 8) for each in (1, 3, 8, 9)], [8, 2, 1, 1])
        left = resources.memory_left()
        self.assertEqual(resources.bound(1, 2 * left, 8), 1)
        self.assertLessEqual(resources.bound(1, left // 3, 8), 4)
        self.assertEqual([resources.size_of(text) for text in ("500M", "2G", "1.5GiB", "7", "1kb")],
                         [500 << 20, 2 << 30, 3 << 29, 7, 1 << 10])
        for text in ("", "G", "-1G", "2X", "1e999"):
            self.assertRaises(Refused, resources.size_of, text)


if __name__ == "__main__":
    unittest.main()
