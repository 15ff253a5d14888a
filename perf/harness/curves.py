"""Curves as SVG, both axes logarithmic, drawn by hand so that a report needs nothing but a browser."""
import math
from html import escape

WIDTH, HEIGHT = 620, 380
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 30, 44
COLOURS = {"Tutti": "#0b5cad", "Tutti, zero copy": "#00a6a6", "Open MPI": "#d1495b", "Open MPI, malloc": "#e07a3f",
           "Open MPI, no CMA": "#c2571a", "Open MPI, no CMA, malloc": "#8f2d56", "Open MPI, UCX": "#e0a11b",
           "MPICH": "#6a4c93", "Gloo": "#4c956c"}
SPARE = ("#3d5a80", "#98703b", "#5f0f40", "#777777")


class Axis:
    """From values to pixels."""

    def __init__(self, values, begin, end):
        low, high = min(values), max(values)
        if low == high:
            low, high = low / 2, high * 2
        margin = (high / low) ** 0.03
        self.low, self.high = math.log(low / margin), math.log(high * margin)
        self.begin, self.end = begin, end

    def at(self, value):
        share = (math.log(value) - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def holds(self, value):
        return self.low - 1e-9 <= math.log(value) <= self.high + 1e-9


def number(value):
    return f"{value:g}" if value < 10000 else f"{value:.0e}".replace("e+0", "e")


def decades(axis):
    first, last = math.floor(axis.low / math.log(10)), math.ceil(axis.high / math.log(10))
    steps = (1, 2, 5) if last - first <= 3 else (1,)
    ticks = [step * 10.0 ** power for power in range(first, last + 1) for step in steps]
    return [tick for tick in ticks if axis.holds(tick)]


def grid(x, y, x_ticks, words):
    parts = []
    for value, name in x_ticks:
        at = x.at(value)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
                     f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{escape(name)}</text>')
    for value in decades(y):
        at = y.at(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
                     f'<text x="{LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{number(value)}</text>')
    parts.append(f'<text x="{LEFT - 50}" y="{TOP - 12}">{escape(words)}</text>')
    return parts


def curve(x, y, points, style, name):
    path = " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in points)
    marks = "".join(f'<circle cx="{x.at(a):.1f}" cy="{y.at(b):.1f}" r="2.6" fill="{style["colour"]}">'
                    f'<title>{escape(name)}: {number(a)} B, {b:.3g}</title></circle>' for a, b in points)
    return (f'<polyline points="{path}" fill="none" stroke="{style["colour"]}" stroke-width="{style["width"]}"'
            f' stroke-dasharray="{style["dash"]}"/>' + (marks if style["marks"] else ""))


def spread_of(x, y, at, colour):
    """The middle half of the rounds, an upright line through the point."""
    value, low, high = at
    return (f'<line class="spread" x1="{x.at(value):.1f}" x2="{x.at(value):.1f}" y1="{y.at(low):.1f}" y2="{y.at(high):.1f}"'
            f' stroke="{colour}" stroke-width="1"/>')


def style_of(name, index):
    colour = COLOURS.get(name, SPARE[index % len(SPARE)])
    return {"colour": colour, "width": 2.4 if name.startswith("Tutti") else 1.4, "dash": "", "marks": True}


LIMIT_DASHES = {"flag": "6 3", "loopback latency": "6 3", "copy": "2 3", "loopback stream": "2 3", "2 in 2 out": "9 3 2 3"}
FAR_BELOW = 5       # limits are left out where they are so many times below everything measured


def draw(series, spreads, limits, words, ticks):
    """series and limits: {name: [(x, y)]}; spreads: {name: [(x, low, high)]}. Returns the SVG with its legend below it."""
    shown = {name: points for name, points in {**series, **limits}.items() if points}
    if not any(name in shown for name in series):
        return "<p>Nothing was measured here.</p>"
    floor = min(b for name in series for _, b in shown.get(name, ())) / FAR_BELOW
    shown = {name: [p for p in points if p[1] >= floor] for name, points in shown.items()}
    shown = {name: points for name, points in shown.items() if points}
    xs = [a for points in shown.values() for a, _ in points]
    ys = [b for points in shown.values() for _, b in points] + [y for s in spreads.values() for at in s for y in at[1:]]
    x, y = Axis(xs, LEFT, WIDTH - RIGHT), Axis(ys, HEIGHT - BOTTOM, TOP)
    parts, legend = grid(x, y, [t for t in ticks if x.holds(t[0])], words), []
    styles = [(name, style_of(name, i)) for i, name in enumerate(series) if name in shown]
    styles += [(name, {"colour": "#444", "width": 1.2, "dash": LIMIT_DASHES.get(name, "4 4"), "marks": False})
               for name in limits if name in shown]
    for name, style in styles:
        parts.append(curve(x, y, shown[name], style, name))
        parts += [spread_of(x, y, at, style["colour"]) for at in spreads.get(name, ())]
        legend.append(f'<span><svg width="26" height="8"><line x1="0" x2="26" y1="4" y2="4" stroke="{style["colour"]}"'
                      f' stroke-width="{style["width"]}" stroke-dasharray="{style["dash"]}"/></svg> '
                      f'{escape(name)}{"" if name in series else " (limit)"}</span>')
    return (f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'
            f'<div class="legend">{" ".join(legend)}</div>')
