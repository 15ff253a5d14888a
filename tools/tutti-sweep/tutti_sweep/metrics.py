"""What a trial's metrics.jsonl says of one metric, read while the trial writes it."""
import contextlib
import json
import math

from tutti_sweep.refused import nearest


MOST_STEPS = 1 << 53


class Damaged(Exception):
    """A row that is none. The text is the trial's reason for failing."""


def number_of(value):
    """tutti_metrics writes what is not finite as a text."""
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:               # a whole number of 400 digits
        return math.inf if value > 0 else -math.inf


def is_step(value):
    return type(value) is int and abs(value) <= MOST_STEPS


def is_json(text):
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def cut_half_row(path):
    """What a killed trial may have left, before it writes behind it."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb+") as file:
        text = file.read()
        file.truncate(text.rfind(b"\n") + 1)


class Series:
    """The values of a metric by step. Of a step that was done again the last one counts."""

    def __init__(self, path, metric):
        self.path, self.metric = path, metric
        self.begin_again()

    def begin_again(self):
        self.values, self.names, self.last_step = {}, [], None
        self.offset, self.lines, self.rest = 0, 0, b""

    def read_on(self, is_at_its_end=False):
        """[(step, value)] of the rows that are new. Half a line waits for its other half; at the end of the trial a row without
        a newline is one."""
        try:
            with open(self.path, "rb") as file:
                if file.seek(0, 2) < self.offset:
                    self.begin_again()                   # the program has written it anew
                file.seek(self.offset)
                text = file.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Damaged(f"its metrics.jsonl could not be read: {error.strerror}") from error
        self.offset += len(text)
        *lines, self.rest = (self.rest + text).split(b"\n")
        if is_at_its_end and is_json(self.rest):
            lines, self.rest = [*lines, self.rest], b""
        return [row for row in map(self.row_of, lines) if row]

    def row_of(self, line):
        self.lines += 1
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Damaged(f"line {self.lines} of its metrics.jsonl is no JSON") from error
        if not isinstance(row, dict) or not is_step(row.get("step")):
            raise Damaged(f"line {self.lines} of its metrics.jsonl has no step")
        self.names += [name for name in row if name not in self.names and name not in ("step", "time")]
        if self.metric not in row:
            return None
        value = number_of(row[self.metric])
        if value is None:
            raise Damaged(f"line {self.lines} of its metrics.jsonl has {json.dumps(row[self.metric])} for {self.metric}")
        self.values[row["step"]] = value
        self.last_step = row["step"]
        return row["step"], value

    def result(self, which, mode):
        """(value, None), or (None, why there is none). which: last or best; mode: min or max."""
        if not self.lines:
            return None, "it has written no row of metrics.jsonl in its {dir}"
        if not self.values:
            return None, (f"its metrics.jsonl has no {self.metric}, but {', '.join(self.names) or 'nothing'}"
                          f"{nearest(self.metric, self.names)}")
        last = self.values[self.last_step]
        if not math.isfinite(last):
            return None, f"{self.metric} is {last} at step {self.last_step}"
        finite = [value for value in self.values.values() if math.isfinite(value)]
        return (last if which == "last" else (min if mode == "min" else max)(finite)), None
