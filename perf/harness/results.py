"""A comparison's results and the files that they go to: results.csv, results.json, table.md, report.html."""
import json

from harness import machine, report, study, targets

FAILED, REFUSED, MISSING = "failed", "cannot be had", "not here"      # why a contender was left out somewhere


class Results:
    def __init__(self, settings, commit):
        self.settings = settings         # {option: value}
        self.commit = commit             # of Tutti, or why it is not known
        self.machine = machine.describe()
        self.limits = None
        self.contenders = {}             # {over: [contenders]}
        self.notes = []                  # messages: what is missing, what was left out, what ended early
        self.failed = None               # a message: these results are worth nothing
        self.points = []
        self.libraries = {}              # {library: version}
        self.left_out = []               # [{contender, where, kind: of those above, why}]
        self.is_interrupted = False

    def note(self, message):
        if message not in self.notes:
            self.notes.append(message)

    def say(self, message):
        """Notes and prints it, the first time."""
        if message not in self.notes:
            print(message, flush=True)
        self.note(message)

    def leave_out(self, contender, where, kind, why):
        self.left_out.append({"contender": contender, "where": str(where), "kind": kind, "why": why})

    def why_incomplete(self):
        """Messages: what failed. What a peer lacks, or a peer that is not here, is no failure; of Tutti it is."""
        found = ["Not complete: it was interrupted."] if self.is_interrupted else []
        alike = {}
        for one in self.left_out:
            if one["kind"] == FAILED or one["contender"].startswith("Tutti"):
                alike.setdefault((one["where"], one["why"]), []).append(one["contender"])
        return found + [f"Not complete: without {'; '.join(names)} in {where}, since {why}." for (where, why), names in alike.items()]

    def places(self):
        """[(place, dtype, points by size)] in the order of measuring."""
        found = {}
        for point in self.points:
            if point.times:
                found.setdefault((point.place, point.dtype), []).append(point)
        return [(place, dtype, sorted(points, key=lambda p: p.size)) for (place, dtype), points in found.items()]

    def verdict_tables(self):
        return (targets.all_reduce_verdicts(self.points, self.limits), targets.other_verdicts(self.points, self.limits),
                targets.bf16_verdicts(self.points))

    def shortfalls(self):
        return targets.shortfalls(self.verdict_tables(), self.limits)

    def peer_lines(self):
        lines = []
        for over, contenders in self.contenders.items():
            for c in contenders:
                version = self.libraries.get(c.library) or c.version
                lines.append((f"{'TCP' if over == 'tcp' else 'shared memory'}", c.name, version, c.settings()))
        return lines


def as_json(results):
    return {
        "complete": not results.failed and not results.why_incomplete(),
        "failed": results.failed, "left_out": results.left_out, "notes": results.notes, "settings": results.settings,
        "commit": results.commit,
        "machine": results.machine, "limits": results.limits, "libraries": results.libraries,
        "contenders": [dict(zip(("over", "name", "version", "settings"), line)) for line in results.peer_lines()],
        "shortfalls": results.shortfalls(),
        "points": [{"over": p.place.over, "ranks": p.place.ranks, "collective": p.place.collective,
                    "dtype": p.dtype, "bytes": p.size, "times_us": p.times} for p in results.points],
    }


def as_csv(results):
    return study.csv_of(("over", "ranks", "collective", "dtype", "bytes", "contender", "round", "time_us"),
                        [(p.place.over, p.place.ranks, p.place.collective, p.dtype, p.size, name, turn, time)
                         for p in results.points for name, times in p.times.items() for turn, time in enumerate(times, 1)])


def texts_of(results):
    """{file: text}."""
    return {"results.csv": as_csv(results), "results.json": json.dumps(as_json(results), indent=1),
            "table.md": report.markdown(results), "report.html": report.html_of(results)}
