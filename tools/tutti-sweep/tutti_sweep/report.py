"""A sweep's results: the trials as a table of text, the best first, and DIR/report.html, one page that needs no network, in the
frame of tutti-report's pages."""
import contextlib
import math
import os
import shlex

from harness import curves, files, page
from harness.charts import pair
from harness.page import escape
from tutti_sweep import command, metrics, space
from tutti_sweep.journal import DONE, FAILED, PRUNED, folder_of
from tutti_sweep.refused import Refused
from tutti_sweep.space import Values
from tutti_sweep.sweep import values_for

NAME = "report.html"
STYLE = ".is-best td { background: #d8f0dc } .pruned td { background: #fdf1c7 } .failed td { background: #f9d5d3 }"
LOG_FROM = 50           # as tutti-report: a metric whose greatest value is so many times its least has a logarithmic axis
MOST_NAMES = 12         # of a parameter's values below their axis
LOOKS = {"best": {"colour": "#0b5cad", "width": 2.6, "dash": "", "marks": True},
         DONE: {"colour": "#4c956c", "width": 1.2, "dash": "", "marks": True},
         PRUNED: {"colour": "#e07a3f", "width": 1.2, "dash": "5 3", "marks": True},
         FAILED: {"colour": "#d1495b", "width": 1.2, "dash": "2 3", "marks": True}}
WORDS = {"best": "the best trial", DONE: "trials that ran to their end", PRUNED: "stopped early", FAILED: "failed"}


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


def is_log(values):
    return min(values) > 0 and max(values) >= LOG_FROM * min(values)


def axes(xs, ys, x_log):
    x = curves.Axis(xs, curves.LEFT, curves.WIDTH - curves.RIGHT, x_log)
    return x, curves.Axis(ys, curves.HEIGHT - curves.BOTTOM, curves.TOP, is_log(ys))


def legend(looks):
    return "".join(curves.legend_of(WORDS[look], LOOKS[look], False) for look in LOOKS if look in looks)


def whole(parts, words, looks):
    return (f'<svg viewBox="0 0 {curves.WIDTH} {curves.HEIGHT}" role="img" aria-label="{escape(words)}">{"".join(parts)}</svg>'
            f'<div class="legend">{legend(looks)}</div>')


def scatter(name, parameter, trials, best, metric):
    """trials: those with a value."""
    points = [(trial.point[name], trial.value, trial) for trial in trials]
    x, y = axes([at for at, _, _ in points], [value for _, value, _ in points], parameter.is_log)
    if isinstance(parameter, Values):
        used = sorted({at for at, _, _ in points})
        ticks = [(at, command.text_of(parameter.value_at(at))) for at in used[::math.ceil(len(used) / MOST_NAMES)]]
    else:
        ticks = [(tick, curves.number(tick)) for tick in curves.ticks_of(x)]
    words = f"{metric} by {name}"
    parts, looks = curves.grid(x, y, ticks, words, f"{name}{' (log scale)' if parameter.is_log else ''}"), set()
    for at, value, trial in points:
        look = "best" if trial is best else trial.state
        told = f"trial {trial.number}: {name} {command.text_of(trial.params[name])}, {metric} {value:.6g}"
        radius = 6 if look == "best" else 4
        parts.append(f'<circle cx="{x.at(at):.1f}" cy="{y.at(value):.1f}" r="{radius}" fill="{LOOKS[look]["colour"]}" '
                     f'fill-opacity=".8"><title>{escape(told)}</title></circle>')
        looks.add(look)
    return whole(parts, words, looks)


def progress(series, best, metric):
    """series: {trial: [(step, value)]}, finite ones. The best is drawn last, above the others."""
    points = [point for found in series.values() for point in found]
    if not points:
        return ""
    x, y = axes([step for step, _ in points], [value for _, value in points], False)
    ticks = [(tick, curves.number(tick)) for tick in curves.ticks_of(x)]
    parts, looks = curves.grid(x, y, ticks, metric, "step"), set()
    for trial, found in sorted(series.items(), key=lambda item: item[0] is best):
        look = "best" if trial is best else trial.state
        if found:
            parts.append(curves.curve(x, y, found, LOOKS[look], f"trial {trial.number}", "step {:g}"))
            looks.add(look)
    return whole(parts, metric, looks)


def curve_of(trial, given):
    """What could be read of it, by step."""
    series = metrics.Series(os.path.join(folder_of(given.out, trial.number), "metrics.jsonl"), given.metric)
    with contextlib.suppress(metrics.Damaged):
        series.read_on()
    return [(step, value) for step, value in sorted(series.values.items()) if math.isfinite(value)]


def trials_table(history, given, best):
    head = [*head_of(history, given.metric), "why"]
    rows = []
    for trial in ordered(history, given.mode):
        kind = "is-best" if trial is best else trial.state
        cells = "".join(f"<td>{escape(word)}</td>" for word in [*row_of(trial), trial.reason])
        rows.append(f'<tr class="{kind}">{cells}</tr>')
    return f"<table><tr>{''.join(f'<th>{escape(word)}</th>' for word in head)}</tr>{''.join(rows)}</table>"


def summary(history, given, best):
    counts = {state: sum(trial.state == state for trial in history.trials) for state in (DONE, PRUNED, FAILED)}
    told = f"{counts[DONE]} trials ran to their end, {counts[PRUNED]} were stopped early, {counts[FAILED]} failed."
    goal = f"The {given.value} {given.metric} of a trial counts, and the {'least' if given.mode == 'min' else 'greatest'} is best."
    if not best:
        return f'<p>{told} {escape(goal)}</p><p class="warning">No trial has a result.</p>'
    return (f"<p>{told} {escape(goal)}</p><p>The best is trial {best.number}, with {escape(given.metric)} {best.value:.6g}:</p>"
            f"<pre>{escape(best_command(history, given))}</pre>")


def settings(history):
    rows = [(key.replace("_", " "), str(value)) for key, value in history.begin.items() if key not in ("space", "command")]
    spec = [(name, str(of["_type"]), str(of["_value"])) for name, of in history.begin["space"].items()]
    return page.folded("The space, and how it was searched",
                       page.table(("parameter", "type", "values"), spec, "peers") + page.table((), rows, "peers"))


def html_of(history, given):
    parameters = {name: space.parameter_of(name, spec) for name, spec in history.begin["space"].items()}
    best = next(iter(history.ranked(given.mode)), None)
    measured = [trial for trial in history.trials if trial.value is not None and math.isfinite(trial.value)]
    body = summary(history, given, best)
    if measured:
        drawn = [scatter(name, parameter, measured, best, given.metric) for name, parameter in parameters.items()]
        body += f"<h2>Parameters</h2>{pair(*drawn)}"
    training = progress({trial: curve_of(trial, given) for trial in history.trials if trial.state}, best, given.metric)
    if training:
        body += f"<h2>Training</h2>{pair(training)}"
    return page.whole(f"Tutti: a sweep of {', '.join(parameters)}", f"{body}<h2>Trials</h2>{trials_table(history, given, best)}"
                      f"{settings(history)}", STYLE)


def write(history, given):
    """Its path."""
    path = os.path.join(given.out, NAME)
    try:
        files.write_whole(given.out, {NAME: html_of(history, given)})
    except OSError as error:
        raise Refused(f"{path} could not be written: {error.strerror}.") from error
    return path
