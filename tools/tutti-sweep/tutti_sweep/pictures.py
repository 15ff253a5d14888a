"""The two charts of a sweep: a parameter's values against the metric, and the metric of all trials by step."""
import math

from harness import curves
from harness.page import escape
from tutti_sweep import command
from tutti_sweep.journal import DONE, FAILED, PRUNED
from tutti_sweep.space import Values

LOG_FROM = 50           # as tutti-report: a metric whose greatest value is so many times its least has a logarithmic axis
MOST_NAMES = 12         # of a parameter's values below their axis
LOOKS = {"best": {"colour": "#0b5cad", "width": 2.6, "dash": "", "marks": True},
         DONE: {"colour": "#4c956c", "width": 1.2, "dash": "", "marks": True},
         PRUNED: {"colour": "#e07a3f", "width": 1.2, "dash": "5 3", "marks": True},
         FAILED: {"colour": "#d1495b", "width": 1.2, "dash": "2 3", "marks": True}}
WORDS = {"best": "the best trial", DONE: "trials that ran to their end", PRUNED: "stopped early", FAILED: "failed"}


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
