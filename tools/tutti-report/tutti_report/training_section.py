"""Training logs: a chart for each metric, with a curve for each run."""
import math
import os

from harness import curves, page
from harness.charts import pair
from harness.page import escape
from harness.spread import median
from tutti_report.sources import MOST

LOG_FROM = 50       # a metric whose greatest value is so many times its least has a logarithmic axis


class Run:
    def __init__(self, source):
        """Of a step that was done again the last row counts."""
        self.path = source.path
        self.names = source.data["names"]
        self.rows = dict(sorted((step, (time, values)) for step, time, values in source.data["rows"]))
        self.repeated = len(source.data["rows"]) - len(self.rows)
        self.name = ""

    def curve(self, metric):
        return [(step, values[metric]) for step, (_, values) in self.rows.items() if abs(values.get(metric, math.nan)) <= MOST]

    def not_finite(self, metric):
        return [step for step, (_, values) in self.rows.items() if not abs(values.get(metric, 0)) <= MOST]

    def seconds(self):
        """[(step, seconds a step since the row before)]; nothing where the clock went back, as between two starts."""
        rows = [(step, time) for step, (time, _) in self.rows.items()]
        return [(step, (time - before) / (step - last)) for (last, before), (step, time) in zip(rows, rows[1:]) if time > before]


def give_names(runs):
    """The folder, or as much of the path as tells them apart."""
    for depth in range(2, 20):
        for run in runs:
            parts = os.path.abspath(run.path).split(os.sep)
            run.name = os.sep.join(parts[-depth:-1]) or run.path
        if len({run.name for run in runs}) == len(runs):
            return
    for run in runs:
        run.name = run.path


def chart(series, words):
    values = [value for points in series.values() for _, value in points]
    if not values:
        return ""
    is_log = min(values) > 0 and max(values) >= LOG_FROM * min(values)
    return curves.draw({name: points for name, points in series.items() if points}, {}, {}, words, x_words="step",
                       unit="step {:g}", x_log=False, y_log=is_log)


def summary(runs, metrics):
    head = ["run", "rows", "steps", "seconds a step (median)"] + [f"{metric}, last" for metric in metrics]
    rows = []
    for run in runs:
        seconds, steps = [s for _, s in run.seconds()], list(run.rows)
        last = [run.curve(metric)[-1:] for metric in metrics]
        rows.append([run.name, str(len(run.rows)), f"{steps[0]} to {steps[-1]}", f"{median(seconds):.4g}" if seconds else "",
                     *(f"{at[0][1]:.6g}" if at else "" for at in last)])
    return page.table(head, rows)


def remarks(runs, metrics):
    found = []
    for run in runs:
        if run.repeated:
            found.append(f"{run.name}: {run.repeated} step{'s were' if run.repeated > 1 else ' was'} done again; the last row of a "
                         "step counts.")
        for metric in metrics:
            steps = run.not_finite(metric)
            if steps:
                found.append(f"{run.name}: {metric} is not finite in {len(steps)} row{'s' if steps[1:] else ''}, first at step {steps[0]}.")
    return "".join(f'<p class="warning">{escape(message)}</p>' for message in found)


def html_of(found, _tools):
    runs = [Run(source) for source in found]
    give_names(runs)
    metrics = list(dict.fromkeys(name for run in runs for name in run.names))
    drawn = [chart({run.name: run.curve(metric) for run in runs}, metric) for metric in metrics]
    drawn.append(chart({run.name: run.seconds() for run in runs}, "seconds a step"))
    return f"<h2>Training</h2>{remarks(runs, metrics)}{pair(*drawn)}{summary(runs, metrics)}"
