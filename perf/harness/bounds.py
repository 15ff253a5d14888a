"""What the machine's measured limits (from the program limits) say that a collective cannot beat: of every limit the best
value that was seen in the run, apart from flags that cannot be. How far the cores are from each other is said by the median.

    copied(P, n)     bytes that all ranks together must get from others, whatever the algorithm, in buffers of their own.
                     With zero copy results may stay in the cache of the core that stored them: it can go below that
    copy             those, at the rate at which all cores copy lines that another core has just written
    2 in 2 out       zero-copy all_reduce: every rank loads its share of P buffers and stores it into P: 2 n a
                     rank, at the rate measured for just that pattern
    flag, loopback latency   one signal from core to core; no call in which every rank waits for all is over sooner
    loopback stream  copied(P, n), at the rate of a TCP connection over loopback that is busy in both directions
"""
import json
import math
import os
import tempfile
import time

from harness import run
from harness.spread import median

PARTS = ["bandwidth", "flag", "loopback"]
FAR_NS = 150        # a flag that takes longer than this goes between cores that are far from each other
LEAST_FLAG_NS = 20  # no other core's cache answers sooner: then the host ran both cores on one, or a clock was wrong
FLAG_STARTS = 3     # in each measurement: they are short, and one alone may hit a bad moment
ALL_REDUCE_WAYS = 2
# A root may run ahead; of sendrecv each waits for the rank before, which waited for the one before that a call earlier.
WAITS_FOR_ALL = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "sendrecv", "barrier")


def measure(build, env, part, timeout):
    """(what the program limits found, None), or (None, why not, without a full stop)."""
    with tempfile.TemporaryDirectory(prefix="tutti-perf-") as folder:
        path = os.path.join(folder, "limits.json")
        command = [os.path.join(build, "perf", "limits"), "--timeout", str(max(1, int(timeout))), "-J", path, part]
        try:
            code, output = run.run_program(command, env, 2 * timeout + 10)     # its own message comes before that
            if code == 0:
                with open(path, encoding="utf-8") as file:
                    return json.load(file), None
        except run.Hang as hang:
            return None, str(hang)
        except (OSError, ValueError) as error:
            return None, f"limits left no result ({error})"
    said = next((line for line in output.splitlines() if line.startswith("limits: ")), "").rstrip(".")
    return None, said.removeprefix("limits: ") or f"limits {run.how_it_ended(code)}"


class Watched:
    """The limits, measured at the beginning, between others' measurements as long as that takes a small share of all
    the time, and in the end: the cores change their mood within seconds. What fails once is not tried again.

    tell(part, message, why it failed) is called for what cannot be had; what need not be there has not failed: None."""
    SHARE = 0.1

    def __init__(self, build, env, timeout, tell):
        self.build, self.env, self.timeout, self.tell = build, env, timeout, tell
        self.parts, self.found, self.spent = list(PARTS), [], 0
        if not os.access(os.path.join(build, "perf", "limits"), os.X_OK):
            self.parts = []
            tell(None, "The machine's limits could not be measured, since perf/limits was not built: no lines for them.", None)
        self.measure()
        self.begun, self.spent = time.monotonic(), 0

    def measure(self):
        start = time.monotonic()
        found = [self.measure_part(part) for part in self.starts() if part in self.parts]
        self.took = time.monotonic() - start
        self.spent += self.took
        if any(found):
            self.found.append([part for part in found if part])

    def starts(self):
        return [part for part in self.parts for _ in range(FLAG_STARTS if part == "flag" else 1)]

    def measure_part(self, part):
        limits, why_not = measure(self.build, self.env, part, self.timeout)
        if why_not:
            self.parts.remove(part)
            self.tell(part, f"The machine's limit {part} could not be measured: {why_not}.", why_not)
            return None
        for what, why in limits.get("skipped", {}).items():
            self.tell(part, f"The machine's limit {what} is not measured, since {why}.", None)
        return limits

    def measure_if_cheap(self):
        if self.parts and self.spent + self.took <= self.SHARE * (time.monotonic() - self.begun):
            self.measure()

    def combined(self):
        return combined(self.found)


def combined(found):
    """The best of several measurements, of some starts of limits each, with the lowest and the highest of their medians; None
    where there are none. All flags stay, for the report; the limit is the least of those that can be."""
    parts = [part for measurement in found for part in measurement]
    if not parts:
        return None
    limits = {"cores": parts[0]["cores"], "measured": len(found), "ranges": {}, "bandwidth": [],
              "flags": sorted(part["flag_ns"] for part in parts if part.get("flag_ns"))}
    for name in dict.fromkeys(name for part in parts for name, value in part.items() if isinstance(value, (int, float))):
        here = [part for part in parts if name in part]
        if name != "cores":
            limits[name] = (max if name.endswith("GBps") else min)(part[name] for part in here)
            limits["ranges"][name] = ends([part.get("quartiles", {}).get(name, [0, part[name]])[1] for part in here])
    believed, _ = flags_of(limits)
    if believed:
        limits["flag_ns"] = believed[0]
    else:
        limits.pop("flag_ns", None)
    rows = {}
    for row in [row for part in parts for row in part.get("bandwidth", ())]:
        rows.setdefault((row["pattern"], row["cores"], row["bytes"]), []).append(row)
    for (pattern, cores, size), here in rows.items():
        low, high = ends([row.get("quartiles", [0, row["GBps"]])[1] for row in here])
        limits["bandwidth"].append({"pattern": pattern, "cores": cores, "bytes": size, "GBps": max(row["GBps"] for row in here),
                                    "low": low, "high": high})
    return limits


def ends(values):
    return [min(values), max(values)]


def all_cores(limits):
    """How many the patterns of all cores were measured with: limits leaves out an odd one."""
    return limits["cores"] - limits["cores"] % 2 or 1


def pattern_rate(limits, pattern, working_set):
    """Bytes a second of all cores, between the measured sizes straight on log axes. None: not measured."""
    points = sorted((b["bytes"], b["GBps"] * 1e9) for b in limits.get("bandwidth", ())
                    if b["pattern"] == pattern and b["cores"] == all_cores(limits))
    if not points:
        return None
    below = max((p for p in points if p[0] <= working_set), default=points[0])
    above = min((p for p in points if p[0] >= working_set), default=points[-1])
    if below[0] == above[0]:
        return below[1]
    share = math.log(working_set / below[0]) / math.log(above[0] / below[0])
    return below[1] * (above[1] / below[1]) ** share


def copied(collective, ranks, size):
    if collective == "barrier":
        return 0
    if collective in ("gather", "scatter"):    # the root has it all, the others their parts
        return (ranks - 1) * size / ranks
    if collective == "sendrecv":
        return ranks * size
    ways = ALL_REDUCE_WAYS if collective == "all_reduce" else 1
    return ways * (ranks - 1) * size


def lines_at(limits, place, size):
    """{name: microseconds} of the limits that hold for one call."""
    if not limits:
        return {}
    lines = {}
    waits = place.collective in WAITS_FOR_ALL
    if place.over == "tcp":
        lines["loopback latency"] = waits and limits.get("loopback_latency_us")
        rate = limits.get("loopback_GBps")
        lines["loopback stream"] = rate and copied(place.collective, place.ranks, size) / rate / 1e3
        return {name: us for name, us in lines.items() if us}
    lines["flag"] = waits and limits.get("flag_ns", 0) / 1e3
    working_set = size * place.ranks // 2    # the patterns are measured with a buffer of that many for each of 2
    rate = pattern_rate(limits, "copy", working_set)
    lines["copy"] = rate and copied(place.collective, place.ranks, size) / rate * 1e6
    if place.collective == "all_reduce":
        rate = pattern_rate(limits, "2 in 2 out", working_set)
        lines["2 in 2 out"] = rate and 2 * place.ranks * size / rate * 1e6
    return {name: us for name, us in lines.items() if us}


def flags_of(limits):
    """(those of the starts that can be, how many cannot)."""
    flags = (limits or {}).get("flags", [])
    believed = sorted(ns for ns in flags if ns >= LEAST_FLAG_NS)
    return believed, len(flags) - len(believed)


def cores_are_far(limits):
    """By the median of the starts, each of which found the fastest of many tries: neither one bad moment of the machine nor
    one figure too good to be true decides it. None: not known."""
    believed, _ = flags_of(limits)
    return median(believed) > FAR_NS if believed else None
