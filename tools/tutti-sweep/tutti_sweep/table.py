"""The trials as a table of text, the best first."""
import shlex

from tutti_sweep import command
from tutti_sweep.journal import DONE, PRUNED
from tutti_sweep.sweep import values_for


def ordered(history, mode):
    """All trials: those with a result, the best first; then stopped ones, then failed ones."""
    rest = [trial for trial in history.trials if trial.state not in (DONE, None)]
    return history.ranked(mode) + sorted(rest, key=lambda trial: (trial.state != PRUNED, trial.number))


def shown(value):
    return f"{value:.6g}" if isinstance(value, float) else command.text_of(value)


def head_of(history, metric):
    names = list(history.begin["space"])
    return ["trial", "state", metric, "step", "seconds", *names]


def row_of(trial):
    return [str(trial.number), trial.state, "" if trial.value is None else f"{trial.value:.6g}",
            "" if trial.step is None else str(trial.step), f"{trial.seconds:.1f}", *map(shown, trial.params.values())]


def best_command(history, given):
    """As a shell takes it; None where no trial has a result."""
    ranked = history.ranked(given.mode)
    if not ranked:
        return None
    return shlex.join(command.fill(given.command, values_for(ranked[0], given.out, 0)))


def text_of(history, given):
    trials = ordered(history, given.mode)
    rows = [head_of(history, given.metric)] + [row_of(trial) for trial in trials]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(word.rjust(width) for word, width in zip(row, widths)).rstrip() for row in rows]
    for trial in trials:
        if trial.reason:
            lines.append(f"trial {trial.number} {trial.state}: {trial.reason}")
    best = best_command(history, given)
    lines.append(f"The best is trial {history.ranked(given.mode)[0].number}: {best}" if best else "No trial has a result.")
    return "\n".join(lines) + "\n"
