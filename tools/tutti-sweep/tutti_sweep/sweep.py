"""The loop of a sweep: starts trials where there is a place, reads their metrics, stops some early, and writes down their ends."""
import contextlib
import json
import os
import select
import signal

from harness import files
from tutti_sweep import command, metrics, running
from tutti_sweep.journal import DONE, FAILED, PRUNED, folder_of
from tutti_sweep.refused import Refused, counted
from tutti_sweep.space import values_at

LOOK_S = 0.1           # between two looks at metrics
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Which signals have come to end the sweep. wait() returns when one has, and when a trial has ended."""

    def __init__(self):
        self.came = []
        self.end, self.wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        is_nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        self.before = {number: signal.signal(number, self.note) for number in ENDING if number != signal.SIGHUP or not is_nohup}
        self.before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)

    def note(self, number, _frame):
        self.came.append(number)

    def wait(self):
        select.select([self.end], [], [], LOOK_S)
        with contextlib.suppress(BlockingIOError):
            os.read(self.end, 4096)

    def restore(self):
        signal.set_wakeup_fd(-1)
        for number, handler in self.before.items():
            signal.signal(number, handler)
        os.close(self.end)
        os.close(self.wake)


class Live:
    """A trial that runs. verdict: (state, step, reason) when it is decided before its end."""

    def __init__(self, trial, slot, series, process):
        self.trial, self.slot, self.series, self.process, self.verdict = trial, slot, series, process, None


def values_for(trial, out, slot):
    folder = folder_of(out, trial.number)
    return {**trial.params, "dir": folder, "trial": trial.number, "slot": slot, "params": os.path.join(folder, "params.json")}


class Sweep:
    """say: takes a line for people. shares: the CPUs of each place."""

    def __init__(self, given, space, journal, method, shares, guard, say):
        self.given, self.space, self.journal, self.method, self.guard, self.say = given, space, journal, method, guard, say
        self.shares, self.free = shares, list(range(len(shares)))[::-1]
        self.live, self.waiting, self.told = [], [], 0

    def replay(self):
        """What was done before, for the method to know. Trials without an end wait to run again."""
        for trial in self.journal.trials:
            self.method.ask(trial.number, trial.point)
            if trial.state is None:
                self.waiting.append(trial)
                continue
            series = metrics.Series(self.metrics_of(trial), self.given.metric)
            with contextlib.suppress(metrics.Damaged):
                for step, value in series.read_on():
                    self.method.report(trial.number, step, value)
            self.tell(trial)

    def metrics_of(self, trial):
        return os.path.join(folder_of(self.given.out, trial.number), "metrics.jsonl")

    def tell(self, trial):
        if self.method.lag is None:
            self.method.tell(trial)

    def tell_until(self, end):
        """In order, the trials before that. False: one of them has not ended."""
        while self.told < end:
            trial = self.journal.trials[self.told]
            if trial.state is None:
                return False
            self.method.tell(trial)
            self.told += 1
        return True

    def next_trial(self):
        """None: all have begun, or the next one must wait for results."""
        if self.waiting:
            trial = self.waiting.pop(0)
            metrics.cut_half_row(self.metrics_of(trial))
            return self.journal.write_start(trial.number, trial.point, trial.params)
        number = len(self.journal.trials)
        if number >= self.given.trials or (self.method.lag and not self.tell_until(number - self.method.lag + 1)):
            return None
        point = self.method.ask(number)
        return self.journal.write_start(number, point, values_at(self.space, point))

    def start(self):
        while self.free and (trial := self.next_trial()):
            slot, folder = self.free.pop(), folder_of(self.given.out, trial.number)
            try:
                files.write_whole(folder, {"params.json": json.dumps(trial.params) + "\n"})
            except OSError as error:
                raise Refused(f"{folder} could not be written: {error.strerror}.") from error
            words = command.fill(self.given.command, values_for(trial, self.given.out, slot))
            process = running.Running(words, folder, self.shares[slot], self.guard)
            self.live.append(Live(trial, slot, metrics.Series(self.metrics_of(trial), self.given.metric), process))

    def look(self, live):
        """Reads what the trial has written since; a trial that has ended gets its end."""
        has_ended = live.process.has_ended()
        try:
            for step, value in live.series.read_on(has_ended):
                if self.method.report(live.trial.number, step, value) and not has_ended:
                    self.decide(live, PRUNED, step, f"stopped at step {step}")
        except metrics.Damaged as damaged:
            self.decide(live, FAILED, live.series.last_step, str(damaged))
        limit = self.given.trial_timeout
        if limit and live.process.seconds() > limit:
            self.decide(live, FAILED, live.series.last_step, f"it ran longer than {limit:g} s")
        if has_ended:
            self.finish(live)

    def decide(self, live, state, step, reason):
        if live.verdict is None:
            live.verdict = state, step, reason
            live.process.end_soon(self.given.grace)

    def finish(self, live):
        seconds, was_told = live.process.seconds(), live.process.kill_at is not None
        code = live.process.finish()
        self.live.remove(live)
        self.free.append(live.slot)
        if was_told and live.verdict is None:
            return                                   # it was interrupted, and runs again
        trial, series = live.trial, live.series
        trial.seconds, trial.step = round(seconds, 3), series.last_step  # as the journal keeps it, for one table in every run
        if live.verdict:
            trial.state, trial.step, trial.reason = live.verdict
            trial.value = series.values.get(trial.step) if trial.state == PRUNED else None
        elif code != 0:
            trial.state, trial.reason = FAILED, running.why_failed(code, folder_of(self.given.out, trial.number))
        else:
            trial.value, reason = series.result(self.given.value, self.given.mode)
            trial.state, trial.reason = (FAILED, reason) if reason else (DONE, "")
        self.journal.write_end(trial)
        self.tell(trial)
        self.report(trial)

    def report(self, trial):
        ended = sum(one.state is not None for one in self.journal.trials)
        value = f"{self.given.metric} {trial.value:.6g}" if trial.value is not None else ""
        what = {DONE: value, PRUNED: f"{trial.reason} with {value}", FAILED: f"failed: {trial.reason}"}[trial.state]
        params = " ".join(f"{name}={command.text_of(at)}" for name, at in trial.params.items())
        self.say(f"trial {trial.number}: {what}, {trial.seconds:.1f} s: {params} ({ended} of {self.given.trials})")

    def end_all(self, signals):
        """SIGTERM to all, and SIGKILL after the grace or at a second signal."""
        for live in self.live:
            live.process.end_soon(self.given.grace)
        if self.live:
            self.say(f"{signal.Signals(signals.came[0]).name}: {counted(len(self.live), 'trial')} got SIGTERM, and "
                     f"{self.given.grace:g} s to end; a second signal kills.")
        while self.live:
            signals.wait()
            if len(signals.came) > 1:
                for live in self.live:
                    live.process.kill()
            for live in [live for live in self.live if live.process.has_ended()]:
                self.finish(live)

    def run(self):
        """The signal that has ended it, or None: all trials have run."""
        signals = Signals()
        try:
            while not signals.came:
                self.start()
                if not self.live:
                    return None
                signals.wait()
                for live in list(self.live):
                    self.look(live)
            self.end_all(signals)
            return signals.came[0]
        finally:
            for live in self.live:
                live.process.kill()
                live.process.finish()
            signals.restore()
