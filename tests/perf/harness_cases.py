"""What would break: sizes that are not the ones asked for, and a test of noise that sees ghosts or nothing."""
import os
import random
import sys
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.environ["SOURCE_DIR"], "perf"))
from harness import bounds, contenders, figures, report, rounds, sizes, spread, tables, targets  # noqa: E402

LIMITS = {"cores": 2, "flag_ns": 60, "flags": [60], "loopback_latency_us": 3, "loopback_GBps": 4, "bandwidth": [
    {"pattern": "2 in 2 out", "cores": 2, "bytes": 1 << 20, "GBps": 80},
    {"pattern": "2 in 2 out", "cores": 2, "bytes": 1 << 24, "GBps": 20},
    {"pattern": "2 in 2 out", "cores": 1, "bytes": 1 << 20, "GBps": 1},
    {"pattern": "copy", "cores": 2, "bytes": 1 << 20, "GBps": 10}]}


class Sizes(unittest.TestCase):
    def test_written(self):
        self.assertEqual(sizes.parse_sizes("1K,16"), [16, 1024])
        self.assertEqual(sizes.parse_sizes("8-130*4,16M"), [8, 32, 128, 16 << 20])
        self.assertEqual(sizes.parse_sizes("1-4"), [1, 2, 4])
        for bad in ("", "0", "K", "4-2", "1-8*1", "1-", "x", "-4"):
            with self.assertRaises(ValueError, msg=bad):
                sizes.parse_sizes(bad)

    def test_units_are_progressions_that_hold_every_size_once(self):
        seed = int(os.environ.get("SEED", random.randrange(1 << 30)))
        print(f"seed {seed}")
        chance = random.Random(seed)
        for _ in range(300):
            asked = sorted({chance.choice((1, 2, 3, 7)) << chance.randrange(26) for _ in range(chance.randrange(1, 12))})
            units = sizes.units_of(asked)
            self.assertEqual(sorted(s for unit in units for s in unit), asked)
            for unit in units:
                factors = {b / a for a, b in zip(unit, unit[1:])}
                self.assertLessEqual(len(factors), 1, unit)
                self.assertTrue(all(f == int(f) and f >= 2 for f in factors), unit)


class Missing(unittest.TestCase):
    def test_a_call_that_a_library_lacks_is_no_missing_package(self):
        gloo = contenders.Contender("Gloo", "Gloo", build="/nowhere", prefix="gloo_")
        for collective, reason in (("reduce_scatter", "older class"), ("all_reduce", "libgloo-dev")):
            ready, messages = contenders.without_program([gloo], collective)
            self.assertEqual(ready, [])
            self.assertIn(reason, messages[0])


class Environment(unittest.TestCase):
    def test_what_launchers_libraries_and_malloc_read_is_left_out(self):
        foreign = ("TUTTI_ALGO OMPI_MCA_btl PMIX_RANK PMI_RANK PMI2_x PRTE_MCA_x MPIR_CVAR_x MPICH_x HYDRA_x I_MPI_x UCX_TLS FI_PROVIDER "
                   "SLURM_JOB_ID SLURMD_x PBS_JOBID TF_CONFIG LD_PRELOAD LD_BIND_NOW MALLOC_ARENA_MAX GLIBC_TUNABLES OMP_PLACES "
                   "GOMP_CPU_AFFINITY KMP_AFFINITY RANK WORLD_SIZE LOCAL_RANK NODE_RANK MASTER_ADDR MASTER_PORT").split()
        kept = {"PATH": "/bin", "HOME": "/", "RANKING": "1", "LD_LIBRARY_PATH": "/lib", "FIRST": "1"}
        with mock.patch.dict(os.environ, dict(kept, **{name: "1" for name in foreign}), clear=True):
            said = []
            env = contenders.clean_environment(said.append)
        self.assertEqual(said, [f"Left out of the environment: {', '.join(sorted(foreign))}."])
        self.assertEqual({name: env.get(name) for name in kept}, kept)
        self.assertFalse(set(foreign) & set(env))


    def test_a_copied_build_measures_its_own_library(self):
        for base, behind in (({}, ""), ({"LD_LIBRARY_PATH": "/lib"}, ":/lib")):
            ours = contenders.tutti("before", "tcp").environment(base)
            self.assertEqual(ours["LD_LIBRARY_PATH"], os.path.abspath("before") + behind)
            self.assertEqual(ours["TUTTI_WINDOW"], "0")
            theirs = contenders.Contender("Gloo", "Gloo", build="before").environment(base)
            self.assertEqual(theirs, base)


class Hanging(unittest.TestCase):
    def test_once_in_a_place_and_in_two_places(self):
        hangs = rounds.Hangs()
        first, second, third = (rounds.Place("shm", n, "all_reduce") for n in (2, 4, 8))
        self.assertFalse(hangs.holds("MPICH", first))
        self.assertIsNone(hangs.add("MPICH", first))
        self.assertEqual([hangs.holds("MPICH", p) for p in (first, second)], [True, False])
        self.assertIn(f"in {first} and in {second}", hangs.add("MPICH", second))
        self.assertTrue(hangs.holds("MPICH", third))
        self.assertFalse(hangs.holds("Gloo", first))


class Noise(unittest.TestCase):
    def test_signed_ranks(self):
        self.assertEqual(spread.wilcoxon_greater([1] * 8), 1 / 256)
        self.assertEqual(spread.wilcoxon_greater([-1] * 8), 1)
        # Ranks 1 2 3, the smallest negative: 5 or more out of 0 1 2 3 3 4 5 6.
        self.assertEqual(spread.wilcoxon_greater([-1, 2, 3]), 2 / 8)
        self.assertEqual(spread.wilcoxon_greater([0, 0]), 1)

    def test_effect_and_significance_are_both_asked_for(self):
        old = [1.0] * 8
        self.assertTrue(spread.is_slower([1.1] * 8, old, 0.03, 0.01))
        self.assertFalse(spread.is_slower([1.02] * 8, old, 0.03, 0.01))
        self.assertFalse(spread.is_slower([1.1] * 6 + [0.5] * 2, old, 0.03, 0.01))

    def test_equal_ones_are_seldom_found_to_differ(self):
        chance = random.Random(7)
        found = sum(spread.wilcoxon_greater([chance.gauss(0, 1) for _ in range(8)]) < 0.05 for _ in range(2000))
        self.assertTrue(40 < found < 140, found)          # 5 % of 2000, and what luck does to it


class Limits(unittest.TestCase):
    def setUp(self):
        self.place = rounds.Place("shm", 2, "all_reduce")

    def test_lines(self):
        lines = bounds.lines_at(LIMITS, self.place, 1 << 20)
        self.assertAlmostEqual(lines["flag"], 0.06)
        self.assertAlmostEqual(lines["copy"], 2 * (1 << 20) / 10e3)
        self.assertAlmostEqual(lines["2 in 2 out"], 4 * (1 << 20) / 80e3)
        between = bounds.pattern_rate(LIMITS, "2 in 2 out", 1 << 22)
        self.assertAlmostEqual(between / 40e9, 1)         # half way on log axes
        tcp = bounds.lines_at(LIMITS, rounds.Place("tcp", 4, "broadcast"), 1 << 20)
        self.assertAlmostEqual(tcp["loopback stream"], 3 * (1 << 20) / 4e3)
        self.assertEqual(bounds.lines_at(None, self.place, 16), {})

    def test_the_best_of_several_measurements_and_their_medians(self):
        found = [[dict(LIMITS, flag_ns=ns, quartiles={"flag_ns": [ns, 2 * ns, 3 * ns]},
                       bandwidth=[dict(LIMITS["bandwidth"][0], GBps=rate, quartiles=[1, rate / 2, rate])])]
                 for ns, rate in ((60, 80), (50, 60), (250, 70))] + [[{"cores": 2, "flag_ns": 7}, {"cores": 2, "flag_ns": 8}]]
        del found[2][0]["loopback_GBps"]
        self.assertEqual(bounds.combined(found)["flags"], [7, 8, 50, 60, 250])
        found.pop()
        limits = bounds.combined(found)
        self.assertEqual((limits["measured"], limits["flag_ns"], limits["ranges"]["flag_ns"]), (3, 50, [100, 500]))
        self.assertEqual((limits["loopback_GBps"], limits["ranges"]["loopback_GBps"]), (4, [4, 4]))
        row, = limits["bandwidth"]
        self.assertEqual((row["GBps"], row["low"], row["high"]), (80, 30, 40))
        text = "\n".join(tables.limit_messages(limits, []) + tables.bandwidth_lines(limits))
        self.assertIn("50 ns (100-500)", text)
        self.assertIn("1 MiB 80.0 (30.0-40.0)", text)
        self.assertIsNone(bounds.combined([]))

    def test_what_was_measured_of_fewer_cores_is_no_limit_of_all(self):
        alone = dict(LIMITS, bandwidth=[LIMITS["bandwidth"][2]])
        self.assertIsNone(bounds.pattern_rate(alone, "2 in 2 out", 1 << 20))
        self.assertEqual(bounds.pattern_rate(dict(alone, cores=1), "2 in 2 out", 1 << 20), 1e9)
        self.assertEqual(bounds.pattern_rate(dict(LIMITS, cores=3), "copy", 1 << 20), 10e9)      # the odd one is left out

    def test_measuring_them_takes_a_small_share_of_the_time(self):
        now = [0]

        def measure(_build, _env, _part, _timeout):
            now[0] += 1
            return dict(LIMITS), None

        with mock.patch("harness.bounds.measure", measure), mock.patch("time.monotonic", lambda: now[0]), \
                mock.patch("os.access", lambda *_: True):
            watched = bounds.Watched("", {}, 120, print)
            for _ in range(100):
                now[0] += 5
                watched.measure_if_cheap()
            watched.measure()
        self.assertTrue(0.05 < 3 * (len(watched.found) - 2) / now[0] <= 0.1, (len(watched.found), now))

    def test_what_a_root_alone_has_is_copied_once(self):
        for collective in ("gather", "scatter"):
            lines = bounds.lines_at(LIMITS, rounds.Place("tcp", 4, collective), 1 << 20)
            self.assertAlmostEqual(lines["loopback stream"], 3 / 4 * (1 << 20) / 4e3)

    def test_of_messages_each_rank_gets_one(self):
        lines = bounds.lines_at(LIMITS, rounds.Place("tcp", 4, "sendrecv"), 1 << 20)
        self.assertAlmostEqual(lines["loopback stream"], 4 * (1 << 20) / 4e3)

    def test_who_need_not_wait_is_not_held_by_a_latency(self):
        for over, name in (("shm", "flag"), ("tcp", "loopback latency")):
            waits = {c: name in bounds.lines_at(LIMITS, rounds.Place(over, 2, c), 16)
                     for c in ("all_reduce", "barrier", "all_to_all", "sendrecv", "broadcast", "reduce", "gather", "scatter")}
            self.assertEqual([c for c, has in waits.items() if has], ["all_reduce", "barrier", "all_to_all", "sendrecv"])

    def test_verdicts(self):
        point = rounds.Point(self.place, "float", 16 << 20)
        point.times = {"Tutti": [1, 1, 1, 1], "Tutti, zero copy": [4000.0] * 4, "Open MPI": [2.5] * 4, "MPICH": [1.8] * 4}
        table = dict(targets.all_reduce_verdicts([point], LIMITS))
        best, stock = table["shared memory, 16 - 64 MiB"][2]
        self.assertEqual((best.state, stock.state), ("90% of it", "missed: 50% of it"))
        limit = table["zero copy, 16 - 64 MiB"][2][1]
        self.assertAlmostEqual(limit.worst, 4 * (16 << 20) / 20e3 / 4000)
        self.assertEqual(table["TCP, to 16 KiB"][2][0].state, "not measured")

    def test_far_cores_have_a_target_of_their_own(self):
        point = rounds.Point(self.place, "float", 64)
        point.times = {"Tutti": [1.0], "MPICH": [1.4]}
        states = [dict(targets.all_reduce_verdicts([point], dict(LIMITS, flags=flags)))["shared memory, 64 B - 1 KiB"][2][0]
                  .state for flags in ([60], [60, 250, 251], [3, 4, 250], [60, 61, 250], [3])]
        self.assertEqual(states, ["missed: 78% of it", "reached", "reached", "missed: 78% of it", "missed: 78% of it"])


    def test_a_target_that_was_not_measured_has_no_message(self):
        for over, ranks, collective, size, is_said in (("shm", 2, "all_reduce", 64, True), ("tcp", 2, "all_reduce", 64, False),
                                                       ("shm", 2, "barrier", 0, False), ("shm", 4, "all_reduce", 64, False),
                                                       ("shm", 2, "all_reduce", 1 << 20, False)):
            point = rounds.Point(rounds.Place(over, ranks, collective), "float", size)
            point.times = {"Tutti": [1.0]}
            for limits in (bounds.combined([[LIMITS]]), None):
                said = " ".join(tables.limit_messages(limits, [point]))
                self.assertEqual("has the target 1.8x" in said, is_said, said)


class Figures(unittest.TestCase):
    def test_small_ones_keep_two_digits(self):
        for value, text in ((0.0007, "0.00070"), (0.1, "0.10"), (0.0123, "0.012"), (1.125, "1.12"), (12.34, "12.34"), (0, "0.00"),
                            (3e-7, "3.0e-07")):
            self.assertEqual(figures.significant(value), text)
        self.assertEqual([figures.percent(share) for share in (0.853, 1.2, 0.00035, 0)], ["85", "120", "0.035", "0"])

    def test_in_tables_verdicts_and_messages(self):
        point = rounds.Point(rounds.Place("shm", 2, "all_reduce"), "float", 1 << 20)
        point.times = {"Tutti": [1000.0] * 3, "MPICH": [0.7] * 3}
        self.assertIn("**0.00070** (0.00070-0.00070)", tables.table_of([point]))
        table = targets.all_reduce_verdicts([point], None)
        verdict = dict(table)["shared memory, 256 KiB - 4 MiB"][2][0]
        self.assertEqual(tables.verdict_text(verdict), "2x: 0.00070 at worst (1 MiB), 0.00070 in the mean: missed: 0.035% of it")
        self.assertIn('class="missed"', report.html_of_cell(tables.verdict_text(verdict)))
        self.assertIn("0.00070 of the 2 asked (0.035 %)", targets.shortfalls([table], None)[0])


class Shortfalls(unittest.TestCase):
    def test_by_how_much_where_and_what_the_limits_say(self):
        point = rounds.Point(rounds.Place("shm", 2, "all_reduce"), "float", 1 << 20)
        good = rounds.Point(point.place, "float", 4 << 20)
        point.times = {"Tutti": [300.0], "MPICH": [450.0], "Open MPI": [460.0]}
        good.times = {"Tutti": [1000.0], "MPICH": [2500.0]}
        table = targets.all_reduce_verdicts([good, point], LIMITS)
        message, = targets.shortfalls([table], LIMITS)
        self.assertEqual(message, "shared memory, 256 KiB - 4 MiB, 2 ranks: 1.50 of the 2 asked (75 %) at 1 MiB: 300 us against "
                         "450 of MPICH; 225 us would reach it, and the limit copy is 210 us.")
        point.times["MPICH"] = [400.0]
        message, = targets.shortfalls([targets.all_reduce_verdicts([point], LIMITS)], LIMITS)
        self.assertIn("200 us would reach it, which the limit copy, 210 us, does not allow", message)
        message, = targets.shortfalls([targets.all_reduce_verdicts([point], None)], dict(LIMITS, bandwidth=[]))
        self.assertTrue(message.endswith("200 us would reach it; the highest limit that was measured for this, flag, is 0.060 us: it "
                                          "does not explain the difference."), message)

    def message_of(self, over, ranks, collective, size, limits, **times):
        point = rounds.Point(rounds.Place(over, ranks, collective), "float", size)
        point.times = {"Tutti": [10.0], "MPICH": [12.0], **{name.replace("_", ", "): [t] for name, t in times.items()}}
        tables_of = targets.all_reduce_verdicts([point], limits), targets.other_verdicts([point], limits)
        return "\n".join(targets.shortfalls(tables_of, limits))

    def test_no_row_is_without_a_why(self):
        self.assertIn("8 us would reach it; no limit of the machine was measured for this.",
                      self.message_of("shm", 2, "barrier", 0, None).replace("8.00", "8"))
        # A root need not wait, and 16 bytes are copied in no time.
        limits = dict(LIMITS, bandwidth=[])
        self.assertTrue(self.message_of("shm", 2, "reduce", 16, limits).endswith("; no limit of the machine was measured for this."))
        self.assertIn("for this, copy, is 0.0016 us: it does not explain", self.message_of("shm", 2, "reduce", 16, LIMITS))
        self.assertTrue(self.message_of("shm", 8, "barrier", 0, limits).endswith(
            "; the highest limit that was measured for this, flag, is 0.060 us: it does not explain the difference; the 8 ranks share 2 "
            "cores, and no limit was measured of how often and how fast they change."))

    def test_against_a_limit_and_against_another_type(self):
        point = rounds.Point(rounds.Place("shm", 2, "all_reduce"), "float", 16 << 20)
        other = rounds.Point(point.place, "bfloat16", 16 << 20)
        point.times = {"Tutti": [5000.0], "Tutti, zero copy": [5000.0], "MPICH": [50000.0]}
        other.times = {"Tutti": [10000.0]}
        found = targets.shortfalls([targets.all_reduce_verdicts([point], LIMITS), targets.bf16_verdicts([point, other])], LIMITS)
        self.assertEqual(found, [
            "zero copy, 16 - 64 MiB, 2 ranks: 0.67 of the 0.8 asked (84 %) at 16 MiB: 5000 us against 3355 of the limit 2 in 2 out; "
            "4194 us would reach it; the best peer, MPICH, takes 50000 us.",
            "bf16 to f32, shared memory, 2 ranks: 0.50 of the 0.8 asked (62 %) at 16 MiB: 10000 us against 5000 of f32; 6250 us would "
            "reach it, and the limit copy is 3355 us."])


class Sized(unittest.TestCase):
    def test_what_has_no_element_for_everybody_is_left_out(self):
        units, _, message = rounds.units_of(rounds.Place("shm", 8, "all_gather"), [8, 16, 64], ["bfloat16", "float"])
        self.assertEqual(units, [[64]])
        self.assertIn("8 B, 16 B are left out of all_gather, 8 ranks, shared memory: ", message)
        self.assertEqual(rounds.units_of(rounds.Place("shm", 8, "all_reduce"), [4], ["float"])[::2], ([[4]], None))
        self.assertEqual(rounds.units_of(rounds.Place("shm", 8, "barrier"), [4], ["float"])[::2], ([[8]], None))


if __name__ == "__main__":
    unittest.main(verbosity=0)
