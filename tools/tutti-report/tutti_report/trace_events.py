"""The events of a trace (Trace Event Format) as operations on tracks. An event that lacks what viewers need is refused."""
import re

from tutti_report.sources import Refused, is_number

NAMES = {"process_name", "thread_name"}
# Of a phase: what an event must have besides a name, a process and a thread.
FIELDS = {"M": ("args",), "X": ("ts", "dur", "args"), "b": ("ts", "id2", "cat", "args"), "e": ("ts", "id2", "cat")}
TRACK = re.compile(r"rank (\d+) of (\d+), communicator ([0-9a-f]{16})(?: (.*))? \(([^()]*)\)$")


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


def check(path, i, event):
    def need(is_so, what):
        if not is_so:
            raise Refused(f"{path} is damaged: event {i + 1} {what}.")

    need(isinstance(event, dict) and event.get("ph") in FIELDS, "is of no known phase")
    need(isinstance(event.get("name"), str) and event["name"], "has no name")
    for key in ("pid", "tid"):
        need(isinstance(event.get(key), int) and not isinstance(event[key], bool), f"has no {key}")
    for key in FIELDS[event["ph"]]:
        need(key in event, f"has no {key}")
        need(key not in ("ts", "dur") or is_number(event[key]), f"has a {key} that is no number")
        need(key != "args" or isinstance(event[key], dict), "has no args")
        need(key != "id2" or (isinstance(event[key], dict) and isinstance(event[key].get("local"), str)), "has no id of its process")
    need(event.get("dur", 0) >= 0, "ends before it begins")
    need(event["ph"] != "M" or event["name"] not in NAMES or isinstance(event["args"].get("name"), str), "names nothing")


def tracks_of(path, events):
    """In the order of processes and their communicators. Every operation is on one."""
    processes, tracks, begun = {}, {}, {}
    for i, event in enumerate(events):
        check(path, i, event)
        key = event["pid"], event["tid"]
        if event["ph"] == "M" and event["name"] == "process_name":
            processes[event["pid"]] = event["args"]["name"]
        elif event["ph"] == "M" and event["name"] == "thread_name":
            tracks[key] = Track(processes.get(event["pid"], f"process {event['pid']}"), event["args"]["name"])
        elif event["ph"] == "M":
            continue
        elif key not in tracks:
            raise Refused(f"{path} is damaged: event {i + 1} is on a track without a name.")
        elif event["ph"] == "X":
            tracks[key].operations.append(Operation(tracks[key], event, event["dur"]))
        elif event["ph"] == "b":
            begun[key, event["id2"]["local"]] = event
        else:
            begin = begun.pop((key, event["id2"]["local"]), None)
            if not begin or event["ts"] < begin["ts"]:
                raise Refused(f"{path} is damaged: event {i + 1} ends what has not begun.")
            tracks[key].operations.append(Operation(tracks[key], begin, event["ts"] - begin["ts"]))
    if begun:
        raise Refused(f"{path} is damaged: {len(begun)} asynchronous operations have no end.")
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
