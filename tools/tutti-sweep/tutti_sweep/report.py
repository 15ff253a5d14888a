"""DIR/report.html: a sweep on one page that needs no network, in the frame of tutti-report's pages."""
import contextlib
import math
import os

from harness import files, page
from harness.charts import pair
from harness.page import escape
from tutti_sweep import metrics, pictures, space, table
from tutti_sweep.journal import DONE, FAILED, PRUNED, folder_of
from tutti_sweep.refused import Refused

NAME = "report.html"
STYLE = ".is-best td { background: #d8f0dc } .pruned td { background: #fdf1c7 } .failed td { background: #f9d5d3 }"


def curve_of(trial, given):
    """What could be read of it, by step."""
    series = metrics.Series(os.path.join(folder_of(given.out, trial.number), "metrics.jsonl"), given.metric)
    with contextlib.suppress(metrics.Damaged):
        series.read_on()
    return [(step, value) for step, value in sorted(series.values.items()) if math.isfinite(value)]


def trials_table(history, given, best):
    head = [*table.head_of(history, given.metric), "why"]
    rows = []
    for trial in table.ordered(history, given.mode):
        kind = "is-best" if trial is best else trial.state
        cells = "".join(f"<td>{escape(word)}</td>" for word in [*table.row_of(trial), trial.reason])
        rows.append(f'<tr class="{kind}">{cells}</tr>')
    return f"<table><tr>{''.join(f'<th>{escape(word)}</th>' for word in head)}</tr>{''.join(rows)}</table>"


def summary(history, given, best):
    counts = {state: sum(trial.state == state for trial in history.trials) for state in (DONE, PRUNED, FAILED)}
    told = f"{counts[DONE]} trials ran to their end, {counts[PRUNED]} were stopped early, {counts[FAILED]} failed."
    goal = f"The {given.value} {given.metric} of a trial counts, and the {'least' if given.mode == 'min' else 'greatest'} is best."
    if not best:
        return f'<p>{told} {escape(goal)}</p><p class="warning">No trial has a result.</p>'
    return (f"<p>{told} {escape(goal)}</p><p>The best is trial {best.number}, with {escape(given.metric)} {best.value:.6g}:</p>"
            f"<pre>{escape(table.best_command(history, given))}</pre>")


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
        drawn = [pictures.scatter(name, parameter, measured, best, given.metric) for name, parameter in parameters.items()]
        body += f"<h2>Parameters</h2>{pair(*drawn)}"
    curves = pictures.progress({trial: curve_of(trial, given) for trial in history.trials if trial.state}, best, given.metric)
    if curves:
        body += f"<h2>Training</h2>{pair(curves)}"
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
