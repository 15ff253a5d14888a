"""Traces: the time line of all ranks, which came last, and who waited for whom. tutti-trace merge puts them on one
clock and judges which rank came last; what it says is on the page, too."""
import os
import re
import subprocess
import tempfile

from harness import page
from harness.page import escape
from tutti_report import sources, timeline
from tutti_report.sources import Refused, is_number

TRACK = re.compile(r"rank (\d+) of (\d+), communicator ([0-9a-f]{16})(?: (.*))? \(([^()]*)\)$")
MERGE_S = 600           # deadline of tutti-trace merge
MOST_RANKS = 32         # in the table of who waited for whom: those that waited or were waited for longest
STYLE = timeline.STYLE + ".waits td { min-width: 4.5em }\n"


def merge(paths, tools):
    """(the document, what merge says of it)."""
    program = os.path.join(tools, "tutti-trace")
    with tempfile.TemporaryDirectory(prefix="tutti-report-") as folder:
        merged = os.path.join(folder, "merged.json")
        try:
            done = subprocess.run([program, "merge", "-o", merged, *(os.path.abspath(path) for path in paths)], timeout=MERGE_S,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        except OSError as error:
            raise Refused(f"traces need tutti-trace, which could not be started: {program}: {error.strerror}.") from error
        except subprocess.TimeoutExpired as error:
            raise Refused(f"tutti-trace merge took more than {MERGE_S} s.") from error
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()[:1] or [f"it ended with {done.returncode}"]
            raise Refused(f"the traces could not be merged: {said[0].removeprefix('tutti-trace: ')}")
        return sources.parse_json(merged, sources.read_text(merged)), done.stdout


class Track:
    """A communicator of a process."""

    def __init__(self, process, text):
        found = TRACK.match(text)
        self.process, self.text = process, text
        self.rank, self.size = (int(found[1]), int(found[2])) if found else (-1, 0)
        self.comm, self.title, self.way = (found[3], found[4] or "", found[5]) if found else (text, "", "")
        self.operations = []

    def name(self):
        return self.title or self.comm[:8]


class Operation:
    """Times in microseconds. wait: how long, from its begin, the last rank had not come, and late, which that was."""

    def __init__(self, track, event, duration):
        self.track, self.name, self.begin, self.args = track, event["name"], event["ts"], event["args"]
        self.duration, self.is_async = duration, event["ph"] == "b"
        self.wait, self.late = 0, -1


def tracks_of(events):
    """In the order of processes and their communicators. Every operation is on one: tutti-trace merge has just written them."""
    processes, tracks, begun = {}, {}, {}
    for event in events:
        key = event["pid"], event["tid"]
        if event["ph"] == "M" and event["name"] == "process_name":
            processes[event["pid"]] = event["args"]["name"]
        elif event["ph"] == "M" and event["name"] == "thread_name":
            tracks[key] = Track(processes.get(event["pid"], f"process {event['pid']}"), event["args"]["name"])
        elif event["ph"] == "X":
            tracks[key].operations.append(Operation(tracks[key], event, event["dur"]))
        elif event["ph"] == "b":
            begun[key, event["id2"]["local"]] = event
        elif event["ph"] == "e":
            begin = begun.pop((key, event["id2"]["local"]))
            tracks[key].operations.append(Operation(tracks[key], begin, event["ts"] - begin["ts"]))
    for track in tracks.values():
        track.operations.sort(key=lambda op: op.begin)
    return list(tracks.values())


def find_waits(tracks):
    """Of collectives of which merge says which rank came last: how long each other rank waited for it."""
    meetings = {}
    for track in tracks:
        for op in track.operations:
            if "sequence" in op.args:
                meetings.setdefault((track.comm, op.args["sequence"]), []).append(op)
    for parts in meetings.values():
        last = next((op for op in parts if is_number(op.args.get("came_last_by_us"))), None)
        for op in parts if last else ():
            if op is not last:
                op.late, op.wait = last.track.rank, min(max(0, last.begin - op.begin), op.duration)


def time_text(us):
    for unit, size in (("s", 1e6), ("ms", 1e3), ("us", 1)):
        if us >= size:
            return f"{us / size:.3g} {unit}" if us < 1000 * size else f"{us / size:,.0f} {unit}"
    return f"{us * 1e3:.3g} ns" if us else "0"


def by_comm(tracks):
    """{communicator: tracks}, of those that more than one rank has."""
    found = {}
    for track in tracks:
        if track.rank >= 0 and track.size > 1:
            found.setdefault(track.comm, []).append(track)
    return found


def came_last(tracks):
    """[(rank, how often it came last, how long it alone was missing)]."""
    found = []
    for track in tracks:
        by = [op.args["came_last_by_us"] for op in track.operations if is_number(op.args.get("came_last_by_us"))]
        found.append((track.rank, len(by), sum(by)))
    return found


def waits_between(tracks):
    """{(who waited, for whom): microseconds}."""
    found = {}
    for track in tracks:
        for op in track.operations:
            if op.late >= 0:
                found[track.rank, op.late] = found.get((track.rank, op.late), 0) + op.wait
    return found


def waits_table(tracks):
    found = waits_between(tracks)
    weights = {}
    for pair, us in found.items():
        for rank in pair:
            weights[rank] = weights.get(rank, 0) + us
    ranks = sorted(sorted((track.rank for track in tracks), key=lambda r: -weights.get(r, 0))[:MOST_RANKS])
    most = max(found.values(), default=0) or 1

    def cell(waiting, late):
        us = found.get((waiting, late), 0)
        if waiting == late:
            return page.Cell('<td class="none">-</td>')
        return page.Cell(f'<td style="background: rgba(209, 73, 91, {0.75 * us / most:.3f})">{time_text(us)}</td>')

    rows = [[f"rank {waiting} waited", *(cell(waiting, late) for late in ranks),
             time_text(sum(us for (who, _), us in found.items() if who == waiting))] for waiting in ranks]
    rows.append(["together", *(time_text(sum(us for (_, whom), us in found.items() if whom == late)) for late in ranks),
                 time_text(sum(found.values()))])
    last = {rank: (f"{times:,}", time_text(us)) for rank, times, us in came_last(tracks)}
    rows += [[words, *(last[late][i] for late in ranks), ""] for i, words in enumerate(("came last, times", "it alone was missing for"))]
    left_out = len(tracks) - len(ranks)
    return page.table(["", *(f"for rank {late}" for late in ranks), "together"], rows, "waits") + (
        f"<p>{left_out} ranks that waited less, and were waited for less, are left out.</p>" if left_out > 0 else "")


def comm_part(comm, tracks):
    first = tracks[0]
    parts = [f"<h3>Who waited for whom: communicator {escape(first.name())}, {first.size} ranks, {escape(first.way)}</h3>"]
    if first.title:
        parts.append(f"<p><small>Its number is {escape(comm)}.</small></p>")
    last = came_last(tracks)
    if not any(times for _, times, _ in last):
        return "".join(parts) + "<p>Of no collective is it known which rank came last.</p>"
    return "".join(parts) + waits_table(tracks)


def unfinished(tracks):
    """A table of what was under way when it was read, or failed."""
    rows = []
    for track in tracks:
        for op in track.operations:
            if op.args.get("state") in ("under way", "failed"):
                sequence = f" #{op.args['sequence']}" if "sequence" in op.args else ""
                rows.append((f"rank {track.rank}", track.name(), op.name + sequence, str(op.args["state"]), time_text(op.duration),
                             str(op.args.get("waits", ""))))
    if not rows:
        return ""
    return "<h3>Not done</h3>" + page.table(("rank", "communicator", "call", "state", "for", "waits"), rows[:100], "peers") + (
        f"<p>And {len(rows) - 100} more.</p>" if rows[100:] else "")


def html_of(found, tools):
    data, report = merge([source.path for source in found], tools)
    where = found[0].path if not found[1:] else "the traces"
    tracks = tracks_of(data["traceEvents"])
    find_waits(tracks)
    if not any(track.operations for track in tracks):
        raise Refused(f"{where} could be read, but no rank has an operation in it.")
    parts = ["<h2>The ranks' time line</h2>", timeline.html_of(tracks), unfinished(tracks)]
    parts += [comm_part(comm, its) for comm, its in by_comm(tracks).items()]
    parts.append(page.folded("What tutti-trace merge says", f"<pre>{escape(report)}</pre>"))
    parts.append("<p><small>The trace itself opens in ui.perfetto.dev and chrome://tracing.</small></p>")
    return "".join(parts)
