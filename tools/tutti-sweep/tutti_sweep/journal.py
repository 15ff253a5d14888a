"""The journal of a sweep: DIR/journal.jsonl, an event a line, each on the disk before the sweep goes on.

    {"event": "begin", "format": 1, ...}                          what is swept, and how
    {"event": "start", "trial": 3, "point": {}, "params": {}}     again, where a trial was interrupted
    {"event": "end", "trial": 3, "state": "done", "value": 2.5, "step": 199, "seconds": 4.2}
"""
import fcntl
import json
import os
import random
import re
import select
import shlex
import time

from tutti_sweep.refused import Refused

NAME, FORMAT = "journal.jsonl", 1
DONE, PRUNED, FAILED = "done", "pruned", "failed"
LOCK_S = 10       # the guard of a sweep that was killed holds the lock until its trials have gone


class Trial:
    """What the journal knows of one. state: None while it runs, or was interrupted."""

    def __init__(self, number, point, params):
        self.number, self.point, self.params = number, point, params
        self.state, self.value, self.step, self.seconds, self.reason = None, None, None, 0.0, ""


class History:
    """What a journal says, of a sweep that may go on meanwhile."""

    def __init__(self, folder):
        self.path = os.path.join(folder, NAME)
        self.begin, self.trials = None, []

    def read(self):
        """Returns how many bytes whole lines have. Half a line at the end is that of a sweep that was killed."""
        try:
            with open(self.path, "rb") as file:
                text = file.read()
        except OSError as error:
            raise Refused(f"{self.path} could not be read: {error.strerror}.") from error
        *lines, rest = text.split(b"\n")
        for i, line in enumerate(lines, 1):
            try:
                self.take(json.loads(line))
            except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
                raise Refused(f"{self.path} is damaged: line {i} is no event of a sweep. Choose another --out.") from error
        return len(text) - len(rest)

    def take(self, event):
        kind = event.pop("event")
        if kind == "begin":
            if self.begin is not None or event.pop("format") != FORMAT:
                raise ValueError("a second begin, or another format")
            self.begin = event
        elif kind == "start":
            if event["trial"] == len(self.trials):
                self.trials.append(Trial(event["trial"], event["point"], event["params"]))
            elif self.trials[event["trial"]].state is not None:
                raise ValueError("a trial that begins after its end")
        elif kind == "end":
            trial = self.trials[event["trial"]]
            if trial.state is not None or event["state"] not in (DONE, PRUNED, FAILED):
                raise ValueError("a second end")
            trial.state, trial.value, trial.step = event["state"], event["value"], event["step"]
            trial.seconds, trial.reason = event["seconds"], event["reason"]
        else:
            raise ValueError("no such event")

    def ranked(self, mode):
        """The trials with a result, the best first."""
        done = [trial for trial in self.trials if trial.state == DONE]
        return sorted(done, key=lambda trial: trial.value if mode == "min" else -trial.value)


class Journal(History):
    """That of a sweep which goes on: nobody else has it open so."""

    def __init__(self, folder):
        super().__init__(folder)
        self.folder = folder
        try:
            os.makedirs(folder, exist_ok=True)
            self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise Refused(f"{self.path} could not be opened: {error.strerror}.") from error
        self.lock(folder)
        os.ftruncate(self.fd, self.read())

    def lock(self, folder):
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Refused(f"another tutti-sweep works in {folder}; end it, or choose another --out.") from None
                select.select([], [], [], 0.02)

    def check_folders(self):
        """One of a trial that has not begun would bring it another sweep's metrics and checkpoints."""
        for name in sorted(os.listdir(self.folder)):
            number = re.fullmatch(r"trial_(\d{4,})", name)
            if number and int(number[1]) >= len(self.trials):
                raise Refused(f"{os.path.join(self.folder, name)} is there, and {self.path} has no such trial: remove it, or "
                              "choose another --out.")

    def write(self, **event):
        line = (json.dumps(event) + "\n").encode()
        try:
            while line:
                line = line[os.write(self.fd, line):]
            os.fsync(self.fd)
        except OSError as error:
            raise Refused(f"{self.path} could not be written: {error.strerror}. The trials were ended; those without a result run "
                          "again when the same command does.") from error

    def write_begin(self, settings):
        self.write(event="begin", format=FORMAT, **settings)
        self.begin = settings

    def write_start(self, number, point, params):
        """A trial that is new, or one that runs again."""
        self.write(event="start", trial=number, point=point, params=params)
        if number == len(self.trials):
            self.trials.append(Trial(number, point, params))
        return self.trials[number]

    def write_end(self, trial):
        self.write(event="end", trial=trial.number, state=trial.state, value=trial.value, step=trial.step,
                   seconds=trial.seconds, reason=trial.reason)


def folder_of(out, number):
    return os.path.join(out, f"trial_{number:04d}")


# What a sweep is made of, as its journal keeps it: a sweep that goes on must have the same. How a message calls each.
FIXED = {"space": "space", "command": "command", "method": "--method", "points": "--points", "metric": "--metric", "mode": "--mode",
         "value": "--value", "early_stop": "--early-stop", "min_steps": "--min-steps", "max_steps": "--max-steps",
         "reduction": "--reduction", "seed": "--seed"}


def setting_shown(key, value):
    return shlex.join(value) if key == "command" else json.dumps(value)


def check_same(found, settings, out):
    for key, name in FIXED.items():
        if json.dumps(found.get(key)) != json.dumps(settings[key]):       # the order of parameters counts, too
            raise Refused(f"{out} has a sweep with another {name}.\n  there: {setting_shown(key, found.get(key))}\n  now:   "
                          f"{setting_shown(key, settings[key])}\nChoose another --out, or go on with the one that is there.")


def settings_of(given, raw, seed):
    return {"space": raw, "seed": seed, **{key: getattr(given, key) for key in FIXED if key not in ("space", "seed")}}


def seed_for(given, begin):
    if given.seed is not None:
        return given.seed
    return begin["seed"] if begin else random.SystemRandom().randrange(1 << 31)
