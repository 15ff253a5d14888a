"""A comparison's results and the files that they go to: results.csv, results.json, table.md, report.html."""
import csv
import json
import os

from harness import machine, report, shortfalls, tables, targets


class Results:
    def __init__(self, settings):
        self.settings = settings         # {option: value}
        self.machine = machine.describe()
        self.limits = None
        self.contenders = {}             # {over: [contenders]}
        self.notes = []                  # sentences: who is missing, who was left out, what ended early
        self.failed = None               # a sentence: these results are worth nothing
        self.points = []
        self.libraries = {}              # {library: version}

    def note(self, sentence):
        if sentence not in self.notes:
            self.notes.append(sentence)

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
        return shortfalls.sentences(self.verdict_tables(), self.limits)

    def peer_lines(self):
        lines = []
        for over, contenders in self.contenders.items():
            for c in contenders:
                version = self.libraries.get(c.library) or c.version
                lines.append((f"{'TCP' if over == 'tcp' else 'shared memory'}", c.name, version, c.settings()))
        return lines


def as_json(results):
    return {
        "complete": not results.failed and not any(n.startswith("Interrupted") for n in results.notes),
        "failed": results.failed, "notes": results.notes, "settings": results.settings,
        "machine": results.machine, "limits": results.limits, "libraries": results.libraries,
        "contenders": [dict(zip(("over", "name", "version", "settings"), line)) for line in results.peer_lines()],
        "shortfalls": results.shortfalls(),
        "points": [{"over": p.place.over, "ranks": p.place.ranks, "collective": p.place.collective,
                    "dtype": p.dtype, "bytes": p.size, "times_us": p.times} for p in results.points],
    }


def write_csv(results, file):
    writer = csv.writer(file)
    writer.writerow(("over", "ranks", "collective", "dtype", "bytes", "contender", "round", "time_us"))
    for p in results.points:
        for name, times in p.times.items():
            for turn, time in enumerate(times, 1):
                writer.writerow((p.place.over, p.place.ranks, p.place.collective, p.dtype, p.size, name, turn, time))


def write_all(results, folder):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "results.csv"), "w", encoding="utf-8", newline="") as file:
        write_csv(results, file)
    with open(os.path.join(folder, "results.json"), "w", encoding="utf-8") as file:
        json.dump(as_json(results), file, indent=1)
    with open(os.path.join(folder, "table.md"), "w", encoding="utf-8") as file:
        file.write(tables.markdown(results))
    with open(os.path.join(folder, "report.html"), "w", encoding="utf-8") as file:
        file.write(report.html_of(results))
