"""report_cases.py FOLDER: unit tests of tutti-report. FOLDER has real inputs, which test_report.sh has made there, and their page."""
import contextlib
import csv
import io
import json
import os
import random
import re
import sys
import unittest
import xml.etree.ElementTree as ElementTree

sys.dont_write_bytecode = True
SOURCE = os.environ["SOURCE_DIR"]
TOOLS = os.path.join(os.environ["BUILD_DIR"], "tools")
sys.path[:0] = [os.path.join(SOURCE, "perf"), os.path.join(SOURCE, "tools", "tutti-report")]
from harness import curves, page  # noqa: E402
from tutti_report import main, perf_section, sources, timeline, trace_section, training_section  # noqa: E402

FOLDER = sys.argv.pop(1)
FOREIGN = re.compile(r"(?:https?|ftp|file)://|\b(?:src|href|srcset|action)\s*=|@import|\burl\(|\bfetch\(|XMLHttpRequest|WebSocket")


def path_of(name):
    return os.path.join(FOLDER, name)


def text_of(name):
    with open(path_of(name), encoding="utf-8") as file:
        return file.read()


def report(*words):
    """(exit code, standard error)."""
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = main.run([*words], TOOLS, "1.2.3")
    return code, said.getvalue()


class Page(unittest.TestCase):
    """What the real inputs hold is on the page that was made of them all."""

    @classmethod
    def setUpClass(cls):
        cls.text = text_of("page.html")
        cls.tree = ElementTree.fromstring(cls.text)
        cls.titles = [element.text for element in cls.tree.iter("title")]

    def has_mark(self, words):
        self.assertTrue(any(words in (title or "") for title in self.titles), f"no point of a curve says '{words}'")

    def test_it_is_one_whole_page_with_one_head(self):
        self.assertTrue(self.text.startswith("<!DOCTYPE html>") and self.text.endswith("</html>\n"))
        self.assertEqual([len(list(self.tree.iter(tag))) for tag in ("head", "body", "h1")], [1, 1, 1])
        ids = [element.get("id") for element in self.tree.iter() if element.get("id")]
        self.assertEqual(len(ids), len(set(ids)))

    def test_it_asks_a_network_for_nothing(self):
        found = FOREIGN.search(self.text)
        self.assertIsNone(found, found and self.text[max(0, found.start() - 60):found.end() + 60])
        self.assertFalse({"link", "img", "iframe", "object", "embed", "form"} & {element.tag for element in self.tree.iter()})

    def test_every_row_of_the_perf_programs(self):
        for name in ("reduce2.json", "reduce2p.json"):
            for row in json.loads(text_of(name))["rows"]:
                self.has_mark(f": {row['bytes']:g} B, {row['time_us']:.4g}")
                self.has_mark(f": {row['bytes']:g} B, {row['busbw']:.4g}")
                self.assertIn(f"<td>{row['time_us']:.4g}</td>", self.text)
        row, = json.loads(text_of("barrier.json"))["rows"]
        self.assertIn(f">{row['time_us']:.4g} us</text>", self.text)

    def test_ratios_of_two_files(self):
        first, second = ({row["bytes"]: row["time_us"] for row in json.loads(text_of(name))["rows"] if not row["in_place"]}
                         for name in ("reduce2.json", "reduce2p.json"))
        for size in first:
            self.has_mark(f"reduce2p.json: {size:g} B, {first[size] / second[size]:.4g}")

    def test_every_metric_of_every_run(self):
        for run in ("one", "two"):
            with open(path_of(f"{run}/metrics.csv"), newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            self.assertGreater(len(rows), 3)
            for row in rows:
                for metric in ("loss", "grad_norm", "learning_rate"):
                    self.has_mark(f"{run}: step {int(row['step']):g}, {float(row[metric]):.4g}")
        self.assertIn(">loss</text>", self.text)
        self.assertIn(">seconds a step", self.text)

    def test_the_time_line_has_every_operation_and_who_waited(self):
        data = json.loads(next(e.text for e in self.tree.iter("script") if e.get("id") == "timeline-data"))
        events = json.loads(text_of("merged.json"))["traceEvents"]
        operations = [event for event in events if event["ph"] in "Xb"]
        self.assertEqual(len(data["operations"]), len(operations))
        self.assertEqual(sorted(data["texts"][op[4]] for op in data["operations"]), sorted(op["name"] for op in operations))
        self.assertEqual({name for name in data["colours"]}, {op["name"] for op in operations})
        # Rank 1 came to the sixth all_reduce when rank 0 was in it.
        sixth = [event for event in operations if event["args"].get("sequence") == 5]
        begins = {event["args"]["rank"]: event["ts"] for event in sixth}
        self.assertEqual(sorted(begins), [0, 1])
        row, = [op for op in data["operations"] if op[5] == 5 and op[14] == 0]
        self.assertEqual(row[11], 1)
        self.assertAlmostEqual(row[3], begins[1] - begins[0], delta=0.01)
        self.assertRegex(self.text, r"<td>rank 0 waited</td><td class=\"none\">-</td><td style=[^>]*>[0-9.,]+ [mu]?s</td>")

    def test_a_trace_is_not_held_while_it_is_merged(self):
        self.assertIsNone(sources.read(path_of("merged.json")).data)

    def test_what_merge_says(self):
        for line in text_of("merge.txt").splitlines():
            self.assertIn(page.escape(line), self.text)


class Curves(unittest.TestCase):
    def test_ticks_are_round_and_inside(self):
        for low, high in ((0, 1), (3.1, 4.7), (1e-9, 3e-9), (-5, 5), (1, 1e7), (99.5, 99.6)):
            ticks = curves.even_ticks(low, high)
            self.assertTrue(2 <= len(ticks) <= 7 and all(low - 1e-12 <= t <= high + 1e-12 for t in ticks), (low, high, ticks))
        axis = curves.Axis([3, 4], 0, 100)
        self.assertGreater(len(curves.ticks_of(axis)), 1)

    def test_what_a_logarithm_cannot_show_is_left_out(self):
        drawn = curves.draw({"a": [(1, 0), (2, 5), (4, -1)]}, {}, {}, "y")
        self.assertEqual(drawn.count("<circle"), 1)
        self.assertIn("Nothing was measured", curves.draw({"a": [(1, 0)]}, {}, {}, "y"))

    def test_long_curves_keep_their_peaks(self):
        points = [(i, 1) for i in range(100000)]
        points[77777] = (77777, 1000)
        kept = curves.thinned(points)
        self.assertIn((77777, 1000), kept)
        self.assertLessEqual(len(kept), curves.MOST_POINTS + 1)
        self.assertEqual((kept[0], kept[-1]), (points[0], points[-1]))
        self.assertEqual(kept, sorted(kept))

    def test_names_do_not_become_markup(self):
        for drawn in (curves.draw({"<b>&\x01": [(1, 1), (2, 2)]}, {}, {}, "<i>"), curves.bars({"<b>": 1}, "<i>", "{} <")):
            ElementTree.fromstring(f"<p>{drawn}</p>")
            self.assertNotIn("<b>", drawn)


class Tables(unittest.TestCase):
    def test_texts_do_not_become_markup(self):
        for text in ("<td><script>alert(1)</script></td>", "<td onmouseover='alert(1)'>", "<b>", "&"):
            cell, = ElementTree.fromstring(page.table((), [(text,)])).iter("td")
            self.assertEqual((cell.text, len(cell)), (text, 0))


class Training(unittest.TestCase):
    @staticmethod
    def run_of(rows, path="/runs/a/metrics.csv"):
        return training_section.Run(sources.Source(path, sources.LOG, {"names": ["loss"], "rows": rows}))

    def test_the_last_row_of_a_step_counts(self):
        run = self.run_of([(1, 10, {"loss": 5}), (2, 12, {"loss": 4}), (1, 20, {"loss": 3}), (2, 23, {"loss": 2})])
        self.assertEqual(run.curve("loss"), [(1, 3), (2, 2)])
        self.assertEqual((run.repeated, run.seconds()), (2, [(2, 3)]))

    def test_what_is_not_finite_is_said_and_not_drawn(self):
        run = self.run_of([(1, 10, {"loss": 5}), (2, 12, {"loss": float("nan")}), (3, 14, {"loss": float("-inf")}), (4, 1, {})])
        self.assertEqual((run.curve("loss"), run.not_finite("loss")), ([(1, 5)], [2, 3]))
        run.name = "a"
        self.assertIn("a: loss is not finite in 2 rows, first at step 2.", training_section.remarks([run], ["loss"]))

    def test_runs_are_told_apart(self):
        runs = [self.run_of([(1, 1, {})], path) for path in ("/x/a/log/metrics.csv", "/x/b/log/metrics.csv", "/y/a/log/metrics.csv")]
        training_section.give_names(runs)
        self.assertEqual([run.name for run in runs], ["x/a/log", "x/b/log", "y/a/log"])

    def test_half_a_row_at_the_end_is_no_row(self):
        for text, read in (("step,time,loss\n1,5,2.5\n2,6,2.", sources.rows_of_csv),
                           ('{"step":1,"time":5,"loss":2.5}\n{"step":2,"ti', sources.rows_of_jsonl)):
            self.assertEqual(read("x", text), {"names": ["loss"], "rows": [(1, 5, {"loss": 2.5})]})


class Perf(unittest.TestCase):
    def test_a_curve_is_named_by_what_differs(self):
        def source(path, **changes):
            row = {"bytes": 8, "time_us": 1, "busbw": 1, "algbw": 1, "dtype": "float", "op": "sum", "in_place": False}
            return sources.Source(path, sources.PERF, {"program": "all_reduce_perf", "library": "Tutti", "ranks": 2, "rows": [row], **changes})

        group, = perf_section.curves_of([source("a"), source("b", ranks=4)]).values()
        perf_section.give_names(group)
        self.assertEqual([c.name for c in group], ["2 ranks", "4 ranks"])
        group, = perf_section.curves_of([source("a"), source("b")]).values()
        perf_section.give_names(group)
        self.assertEqual([c.name for c in group], ["2 ranks, a", "2 ranks, b"])


class Events(unittest.TestCase):
    TRACK = [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "rank 3 of 4: host, process 7"}},
             {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1,
              "args": {"name": "rank 3 of 4, communicator 0123456789abcdef model (2) (window)"}}]
    BLOCK = {"ph": "X", "name": "barrier", "pid": 1, "tid": 1, "ts": 5, "dur": 2, "args": {"sequence": 1}}

    def test_tracks(self):
        track, = trace_section.tracks_of([*self.TRACK, self.BLOCK])
        self.assertEqual((track.rank, track.size, track.comm, track.title, track.way), (3, 4, "0123456789abcdef", "model (2)", "window"))
        self.assertEqual([(op.name, op.begin, op.duration) for op in track.operations], [("barrier", 5, 2)])

    def test_who_waited_for_whom(self):
        tracks = []
        for rank, begin, last in ((0, 10, None), (1, 70, 50), (2, 20, None)):
            text = f"rank {rank} of 3, communicator 0123456789abcdef (tcp)"
            args = {"sequence": 4, **({"came_last_by_us": last} if last else {})}
            tracks += trace_section.tracks_of([dict(self.TRACK[1], args={"name": text}), dict(self.BLOCK, ts=begin, dur=80 - begin, args=args)])
        trace_section.find_waits(tracks)
        self.assertEqual(trace_section.waits_between(tracks), {(0, 1): 60, (2, 1): 50})
        self.assertEqual(trace_section.came_last(tracks), [(0, 0, 0), (1, 1, 50), (2, 0, 0)])
        table = trace_section.waits_table(tracks)
        self.assertIn("<td>rank 0 waited</td>", table)
        self.assertTrue("60 us" in table and "50 us" in table and "110 us" in table, table)

    def test_lanes_of_what_overlaps(self):
        track = trace_section.Track("p", "t")
        spans = ((0, 10), (5, 10), (11, 2), (16, 1))
        ops = [trace_section.Operation(track, {"name": "send", "ts": ts, "args": {}, "ph": "b"}, length) for ts, length in spans]
        ends = []
        self.assertEqual([timeline.lane_of(ends, op) for op in ops], [0, 1, 0, 0])

    def test_rows_are_named_after_ranks(self):
        def tracks_of(*texts):
            return [trace_section.Track(process, f"{of}, communicator {comm * 16} (tcp)") for process, of, comm in texts]

        processes = tracks_of(("rank 3 of 4: h, process 7", "rank 3 of 4", "a"), ("rank 3 of 4: h, process 7", "rank 1 of 2", "b"),
                              ("rank 2 of 4: h, process 8", "rank 2 of 4", "a"))
        self.assertEqual([row[:2] for row in timeline.rows_of(processes)], [("rank 3", "a" * 8), ("", "b" * 8), ("rank 2", "a" * 8)])
        threads = tracks_of(("rank 0 of 2: h, process 7", "rank 0 of 2", "a"), ("rank 0 of 2: h, process 7", "rank 1 of 2", "a"))
        self.assertEqual([row[0] for row in timeline.rows_of(threads)], ["rank 0", "rank 1"])
        operation = trace_section.Operation(threads[1], {"name": "send", "ts": 0, "args": {}, "ph": "b"}, 5)
        threads[1].operations = [operation]
        self.assertEqual([row[:2] for row in timeline.rows_of(threads)][1:], [("rank 1", "a" * 8), ("", "a" * 8 + ", asynchronous")])

    def test_data_cannot_end_the_script(self):
        text = timeline.script_text({"a": "</script><!-- & ]]>"})
        self.assertFalse(set("<>&") & set(text))
        self.assertEqual(json.loads(text), {"a": "</script><!-- & ]]>"})


class Damage(unittest.TestCase):
    """Files of any bytes end in a page, or in one error message."""
    NAMES = ("reduce2p.json", "barrier.json", "one/metrics.csv", "one/metrics.jsonl", "small.json")
    ODD = (None, True, -1, 0, 1e-300, 1e99, 10 ** 400, "", "x", "\x01<&]]>", [], {}, [1], {"a": 1})

    def check(self, path, what):
        code, said = report(path, "-o", path_of("damaged.html"))
        self.assertIn(code, (0, 1), what)
        if code:
            self.assertRegex(said, r"\Atutti-report: [^\n]+\.\n\Z", what)
        else:
            self.assertEqual(said, "", what)
            with open(path_of("damaged.html"), encoding="utf-8") as file:
                ElementTree.fromstring(file.read())

    def change(self, chance, value):
        """Somewhere below it, one value becomes an odd one."""
        inside = list(value.items() if isinstance(value, dict) else enumerate(value)) if isinstance(value, (dict, list)) else []
        if not inside or chance.random() < 0.1:
            return chance.choice(self.ODD)
        key, below = chance.choice(inside)
        changed = dict(value) if isinstance(value, dict) else list(value)
        if isinstance(changed, dict) and chance.random() < 0.1:
            del changed[key]
        else:
            changed[key] = self.change(chance, below)
        return changed

    def test_damaged_files(self):
        seed = int(os.environ.get("SEED", random.randrange(1 << 30)))
        print(f"seed {seed}")
        chance = random.Random(seed)
        for name in self.NAMES:
            text = text_of(name)
            damaged = path_of("damaged" + os.path.splitext(name)[1])
            for turn in range(12 if name == "small.json" else 60):
                if name.endswith(".json") and turn % 3:
                    now = json.dumps(self.change(chance, json.loads(text)))
                else:
                    at = chance.randrange(len(text))
                    now = text[:at] + chance.choice(("", "\0", "9", "-", ",", "\n", '"', "nan", "{", "1e999"))
                    now += text[at + chance.randrange(9):] if turn % 2 else ""
                with open(damaged, "w", encoding="utf-8", newline="") as file:
                    file.write(now)
                self.check(damaged, f"{name}, seed {seed}, turn {turn}")
            os.unlink(damaged)


unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
