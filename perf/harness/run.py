"""One start of one benchmark program: what it measured, or why not. Nothing of it outlives the call."""
import json
import os
import signal
import subprocess
import sys
import tempfile

WRONG = 1     # the programs' exit code for wrong values
REFUSED = 2   # and for what cannot be had
LAST_LINES = 12


class Failure(Exception):
    """A contender that failed or hung: a message, and the last lines that it printed."""

    def __init__(self, message, output=""):
        super().__init__(message)
        self.lines = [l for l in output.splitlines() if l.strip()][-LAST_LINES:]


class Hang(Failure):
    """It did not end in time: it will hardly do so the next time, and that costs as much again."""


class Refusal(Failure):
    """It cannot be had from that library: the program's own words, and exit code 2."""

    def __init__(self, output):
        said = next((l.partition("_perf: ")[2] for l in output.splitlines() if "_perf: " in l), "")
        super().__init__(f"{said.rstrip('.')} (exit code 2)" if said else "it ended with exit code 2", output)


class WrongResult(Failure):
    """A collective gave wrong values. There is nothing to compare any more."""

    def complain(self, program):
        print("\n".join([f"{program}: {self}"] + ["    " + line for line in self.lines]), file=sys.stderr)


def descendants(pid):
    """Those of a process, which launchers put into groups and sessions of their own."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:
                parents[int(name)] = int(stat.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
    found, new = set(), {pid}
    while new:
        found |= new
        new = {child for child, parent in parents.items() if parent in new} - found
    return found - {pid}


def end(process):
    """The launcher may tidy up for a moment; what is left is killed."""
    started = descendants(process.pid)
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        started |= descendants(process.pid)
        process.kill()
        process.wait()
    for pid in started:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def run_program(command, env, timeout):
    """(exit code, output of both streams). A hang is a Hang."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT)
        hung = False
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            hung = True
        finally:
            if process.poll() is None:
                end(process)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if hung:
        raise Hang(f"it did not end within {timeout:g} s", text)
    return process.returncode, text


def how_it_ended(code):
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def rows_of(path, output):
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        return result, result["rows"]
    except (OSError, ValueError, KeyError) as error:
        raise Failure("it ended without a result in JSON", output) from error


def run_unit(command, env, sizes, options, timeout):
    """Measures the sizes, a progression, by one start. Returns (the program's JSON, its rows)."""
    factor = sizes[1] // sizes[0] if len(sizes) > 1 else 2
    with tempfile.TemporaryDirectory(prefix="tutti-perf-") as folder:
        path = os.path.join(folder, "rows.json")
        line = command + ["-b", str(sizes[0]), "-e", str(sizes[-1]), "-f", str(factor)]
        code, output = run_program(line + options + ["-J", path], env, timeout)
        # mpirun's own failures have exit code 1 too; then the program has not printed its first line.
        if code == WRONG and "_perf (" in output:
            raise WrongResult("gave WRONG VALUES", output)
        if code == REFUSED:
            raise Refusal(output)
        if code != 0:
            raise Failure(f"it {how_it_ended(code)}", output)
        result, rows = rows_of(path, output)
    if any(row.get("wrong") for row in rows):
        raise WrongResult("gave WRONG VALUES", output)
    return result, rows


def times_of(rows, sizes, in_place):
    """{size: microseconds}. What cannot be done in place (all_to_all, sendrecv) is taken as it is. A collective that
    rounds its size down, or has none (barrier), answers in the order of the sizes asked for."""
    wanted = [r for r in rows if r.get("in_place") == in_place] or rows
    if len(wanted) != len(sizes):
        raise Failure(f"it answered with {len(wanted)} rows for {len(sizes)} sizes")
    times = {size: float(row["time_us"]) for size, row in zip(sizes, wanted)}
    if not all(t > 0 for t in times.values()):
        raise Failure("it answered with a time that is not above zero")
    return times
