"""The files that a report is made of: which kind each is, and what it holds. Nothing is used before it is checked."""
import csv
import json
import os

PERF, TRACE, LOG = "results of a perf program", "a trace", "a training log"


class Refused(Exception):
    """A file that cannot be used. The text is the whole error message."""


class Foreign(Refused):
    """A whole file of another kind: in a folder, it is passed over."""


class Source:
    """One file. data: the JSON document; of a log {"names", "rows": [(step, time, {name: value})]}; of a trace, which
    tutti-trace reads again, nothing: it may be large."""

    def __init__(self, path, kind, data):
        self.path, self.kind, self.data = path, kind, data


def read_text(path):
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            text = file.read()
    except OSError as error:
        raise Refused(f"{path} could not be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise Refused(f"{path} is no text: byte {error.start} is not UTF-8.") from error
    if not text.strip():
        raise Refused(f"{path} is empty.")
    return text


def refuse_constant(word):
    raise ValueError(f"{word} is no JSON")


def parse_json(path, text, where=""):
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path} is damaged: {where}{error}.") from error


def read(path):
    """OSError never; Refused for whatever it is not."""
    text = read_text(path)
    first = text.split("\n", 1)[0].strip()
    if first.startswith("step,time"):
        return Source(path, LOG, rows_of_csv(path, text))
    if not text.lstrip().startswith("{"):
        raise Foreign(f"{path} is neither JSON nor a log with a head step,time.")
    if first.startswith("{") and first.endswith("}") and '"step"' in first:
        return Source(path, LOG, rows_of_jsonl(path, text))
    data = parse_json(path, text)
    for kind, check in ((PERF, check_perf), (TRACE, check_trace)):
        if KEYS[kind] <= set(data):
            check(path, data)
            return Source(path, kind, None if kind == TRACE else data)
    raise Foreign(f"{path} is JSON, but not that of a perf program (-J), of tutti-trace or of a training log.")


KEYS = {PERF: {"program", "rows", "ranks"}, TRACE: {"traceEvents"}}


# Of any number: what is larger, or nearer to zero, is no result of anything, and sums and ratios of it would overflow.
MOST, LEAST = 1e100, 1e-100


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and (value == 0 or LEAST <= abs(value) <= MOST)


def need(is_so, path, what):
    if not is_so:
        raise Refused(f"{path} is damaged: {what}.")


def check_perf(path, data):
    need(isinstance(data["rows"], list) and data["rows"], path, "it has no rows")
    need(isinstance(data["program"], str) and isinstance(data["ranks"], int) and data["ranks"] > 0, path,
         "it has no program or no ranks")
    need(isinstance(data.get("settings", {}), dict), path, "its settings are none")
    for i, row in enumerate(data["rows"]):
        need(isinstance(row, dict) and all(is_number(row.get(key)) and row[key] >= 0 for key in ("bytes", "time_us", "busbw", "algbw")),
             path, f"row {i + 1} lacks a size, a time or a bandwidth")
        need(isinstance(row["bytes"], int), path, f"row {i + 1} has a size that is no whole number")
        need(all(isinstance(row.get(key), str) for key in ("dtype", "op")), path, f"row {i + 1} lacks a type or an operation")
        need(all(key not in row or is_number(row[key]) for key in ("p50_us", "p99_us", "min_us", "max_us")), path,
             f"row {i + 1} has a percentile that is none")


def check_trace(path, data):
    """tutti-trace checks the rest, and says what is wrong."""
    need(isinstance(data["traceEvents"], list), path, "its traceEvents are no list")
    if not isinstance(data.get("tutti"), dict):
        raise Foreign(f"{path} is a trace of another program: tutti-report shows those of Tutti, ui.perfetto.dev any.")


def value_of(path, where, word):
    """A finite number, or nan or an infinity, as the logs write them."""
    try:
        return float(word)
    except (TypeError, ValueError):
        raise Refused(f"{path} is damaged: {where} has {word!r}, which is no number.") from None


def row_of(path, where, step, time, values):
    try:
        number = int(step)
    except (OverflowError, TypeError, ValueError):
        raise Refused(f"{path} is damaged: {where} has no step.") from None
    seconds = value_of(path, where, time)
    need(abs(number) <= MOST and abs(seconds) <= MOST, path, f"{where} has a step or a time out of all range")
    return number, seconds, values


def rows_of_csv(path, text):
    """A last line without an end is half a row of a program that writes, or was killed."""
    lines = text.splitlines(keepends=True)
    whole = lines if text.endswith("\n") else lines[:-1]
    try:
        head, *body = list(csv.reader(whole or lines, strict=True))
    except csv.Error as error:
        raise Refused(f"{path} is damaged: {error}.") from error
    names, rows = head[2:], []
    for i, row in enumerate(body, 2):
        where = f"line {i}"
        need(len(row) == len(head), path, f"{where} has {len(row)} values, and its head {len(head)} names")
        values = {name: value_of(path, where, word) for name, word in zip(names, row[2:]) if word}
        rows.append(row_of(path, where, row[0], row[1], values))
    need(rows, path, "it has a head and no row")
    return {"names": names, "rows": rows}


def rows_of_jsonl(path, text):
    names, rows = [], []
    lines = text.split("\n")
    for i, line in enumerate(lines[:-1] or lines, 1):
        where = f"line {i}"
        row = parse_json(path, line, f"{where}: ")
        need(isinstance(row, dict) and "step" in row and "time" in row, path, f"{where} has no step or no time")
        values = {name: value_of(path, where, word) for name, word in row.items() if name not in ("step", "time")}
        names += [name for name in values if name not in names]
        rows.append(row_of(path, where, row["step"], row["time"], values))
    return {"names": names, "rows": rows}


def inside(folder):
    """What a folder has of use: one of the logs' two forms, and JSON of the kinds above."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise Refused(f"{folder} could not be read: {error.strerror}.") from error
    if "metrics.csv" in names:
        names = [name for name in names if name != "metrics.jsonl"]
    found = []
    for name in names:
        if name in ("metrics.csv", "metrics.jsonl") or name.endswith(".json"):
            try:
                found.append(read(os.path.join(folder, name)))
            except Foreign:
                continue
    if not found:
        raise Refused(f"{folder} has no metrics.csv, no metrics.jsonl, and no JSON file of results or traces.")
    return found


def read_all(paths):
    found = []
    for path in paths:
        found += inside(path) if os.path.isdir(path) else [read(path)]
    return found
