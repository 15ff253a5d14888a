"""Curves and bars as SVG, drawn by hand so that a page needs nothing but a browser. The texts are well-formed XML."""
import math

from harness.page import escape

WIDTH, HEIGHT = 620, 380
LEFT, RIGHT, TOP, BOTTOM = 68, 16, 34, 52
COLOURS = {"Tutti": "#0b5cad", "Tutti, zero copy": "#00a6a6", "Open MPI": "#d1495b", "Open MPI, malloc": "#e07a3f",
           "Open MPI, no CMA": "#c2571a", "Open MPI, no CMA, malloc": "#8f2d56", "Open MPI, UCX": "#e0a11b",
           "MPICH": "#6a4c93", "Gloo": "#4c956c"}
SPARE = ("#0b5cad", "#d1495b", "#00897b", "#b3730f", "#6a4c93", "#4c956c", "#8f2d56", "#3d5a80", "#98703b", "#777777")
LEAST, MOST = 1e-100, 1e100     # that an axis shows; what is beyond MOST, or below -MOST, lies on its edge
MOST_MARKS = 80         # of a curve; one of more points is a line alone
MOST_POINTS = 800       # of a curve; of more the least and the greatest of each stretch are drawn


def within(value):
    return max(-MOST, min(MOST, value))


class Axis:
    """From values to pixels; logarithmic, or even."""

    def __init__(self, values, begin, end, is_log=True):
        low, high = within(min(values)), within(max(values))
        self.is_log, self.begin, self.end = is_log, begin, end
        if is_log:
            if low == high:
                low, high = low / 2, high * 2
            margin = 0.03 * (math.log(high) - math.log(low))
            self.low, self.high = math.log(low) - margin, math.log(high) + margin
        else:
            reach = (high - low) or abs(high) or 1
            self.low, self.high = low - 0.03 * reach, high + 0.03 * reach

    def place(self, value):
        return math.log(within(value)) if self.is_log else within(value)

    def at(self, value):
        share = (self.place(value) - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def holds(self, value):
        return (value > 0 or not self.is_log) and self.low - 1e-9 <= self.place(value) <= self.high + 1e-9

    def ends(self):
        return (math.exp(self.low), math.exp(self.high)) if self.is_log else (self.low, self.high)


def number(value):
    if abs(value) < 10000:
        return f"{value:g}"
    return f"{value:,.0f}" if abs(value) < 1e6 and value == round(value) else f"{value:.0e}".replace("e+0", "e")


def even_ticks(low, high, most=6):
    """Round numbers between, at most so many but for one."""
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    step *= next((s for s in (1, 2, 5) if (high - low) / (s * step) <= most), 10)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12 - math.floor(math.log10(step))) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def decades(axis):
    first, last = math.floor(axis.low / math.log(10)), math.ceil(axis.high / math.log(10))
    steps = (1, 2, 5) if last - first <= 3 else (1,)
    ticks = [step * 10.0 ** power for power in range(first, last + 1) for step in steps]
    return [tick for tick in ticks if axis.holds(tick)]


def ticks_of(axis):
    ticks = decades(axis) if axis.is_log else []
    return ticks if len(ticks) > 1 else [tick for tick in even_ticks(*axis.ends()) if axis.holds(tick)]


def thinned_names(ticks, axis):
    """Those of the ticks whose names have room beside each other."""
    kept = []
    for value, name in ticks:
        if not kept or axis.at(value) - axis.at(kept[-1][0]) > 7 * max(len(name), len(kept[-1][1])) + 8:
            kept.append((value, name))
    return kept


def grid(x, y, x_ticks, words, x_words):
    parts = []
    for value, name in thinned_names(x_ticks, x):
        at = x.at(value)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
                     f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{escape(name)}</text>')
    for value in ticks_of(y):
        at = y.at(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
                     f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{number(value)}</text>')
    kind = "" if not y.is_log else " (log scale)"
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>'
                 f'<line class="axis" x1="{LEFT}" x2="{LEFT}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
                 f'<text class="words" x="8" y="{TOP - 16}">{escape(words)}{kind}</text>')
    if x_words:
        parts.append(f'<text class="words" x="{WIDTH - RIGHT}" y="{HEIGHT - 14}" text-anchor="end">{escape(x_words)}</text>')
    return parts


def thinned(points):
    """At most so many points that look the same: of each stretch the least and the greatest, in their order."""
    if len(points) <= MOST_POINTS:
        return points
    stretch, kept = 2 * len(points) / MOST_POINTS, []
    for k in range(MOST_POINTS // 2):
        part = points[int(k * stretch):int((k + 1) * stretch)]
        kept += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def mark(x, y, at, style, words):
    shown = f'r="2.6" fill="{style["colour"]}"' if style["marks"] else 'class="unseen" r="5"'
    return f'<circle cx="{x.at(at[0]):.1f}" cy="{y.at(at[1]):.1f}" {shown}><title>{escape(words)}</title></circle>'


def curve(x, y, points, style, name, unit):
    points = thinned(points)
    path = " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in points)
    shown = dict(style, marks=len(points) <= MOST_MARKS)
    marks = "".join(mark(x, y, (a, b), shown, f"{name}: {unit.format(a)}, {b:.4g}") for a, b in points)
    return (f'<polyline points="{path}" fill="none" stroke="{style["colour"]}" stroke-width="{style["width"]}"'
            f' stroke-dasharray="{style["dash"]}"/>' + (marks if style["marks"] else ""))


def spread_of(x, y, at, colour):
    """The middle half of the rounds, an upright line through the point."""
    value, low, high = at
    return (f'<line class="spread" x1="{x.at(value):.1f}" x2="{x.at(value):.1f}" y1="{y.at(low):.1f}" y2="{y.at(high):.1f}"'
            f' stroke="{colour}" stroke-width="1"/>')


def style_of(name, index):
    colour = COLOURS.get(name, SPARE[index % len(SPARE)])
    dash = ("", "7 3", "2 3")[index // len(SPARE) % 3] if name not in COLOURS else ""
    return {"colour": colour, "width": 2.4 if name.startswith("Tutti") else 1.6, "dash": dash, "marks": True}


LIMIT_DASHES = {"flag": "6 3", "loopback latency": "6 3", "copy": "2 3", "loopback stream": "2 3", "2 in 2 out": "9 3 2 3"}
FAR_BELOW = 5       # limits are left out where they are so many times below everything measured


def legend_of(name, style, is_limit):
    return (f'<span><svg width="26" height="8"><line x1="0" x2="26" y1="4" y2="4" stroke="{style["colour"]}"'
            f' stroke-width="{style["width"]}" stroke-dasharray="{style["dash"]}"/></svg> '
            f'{escape(name)}{" (limit)" if is_limit else ""}</span>')


def shown_of(series, limits, is_log):
    """What has a place on the axes: not what a logarithm cannot show, and no limit far below what was measured."""
    shown = {name: [p for p in points if p[1] > LEAST or not is_log] for name, points in {**series, **limits}.items()}
    measured = [b for name in series for _, b in shown[name]]
    floor = min(measured) / FAR_BELOW if measured and limits else -math.inf
    return {name: kept for name, points in shown.items() if (kept := [p for p in points if p[1] >= floor])}


def draw(series, spreads, limits, words, ticks=None, x_words="message size (log scale)", unit="{:g} B", x_log=True, y_log=True,
         level=None, names=None):
    """series and limits: {name: [(x, y)]}; spreads: {name: [(x, low, high)]}; ticks: [(x, its name)], else round numbers;
    level: a y that has a thick line; names: all whose colours differ, in charts that belong together. Returns the SVG with its
    legend below it."""
    shown = shown_of(series, limits, y_log)
    if not any(name in shown for name in series):
        return "<p>Nothing was measured here.</p>"
    xs = [a for points in shown.values() for a, _ in points]
    ys = [b for points in shown.values() for _, b in points] + [y for s in spreads.values() for at in s for y in at[1:]]
    ys += [level] if level else []
    x, y = Axis(xs, LEFT, WIDTH - RIGHT, x_log), Axis(ys, HEIGHT - BOTTOM, TOP, y_log)
    ticks = ticks or [(tick, number(tick)) for tick in ticks_of(x)]
    parts, legend = grid(x, y, [t for t in ticks if x.holds(t[0])], words, x_words), []
    if level:
        parts.append(f'<line class="level" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y.at(level):.1f}" y2="{y.at(level):.1f}"/>')
    styles = [(name, style_of(name, i)) for i, name in enumerate(names or series) if name in series and name in shown]
    styles += [(name, {"colour": "#444", "width": 1.2, "dash": LIMIT_DASHES.get(name, "4 4"), "marks": False})
               for name in limits if name in shown]
    for name, style in styles:
        parts.append(curve(x, y, shown[name], style, name, unit))
        parts += [spread_of(x, y, at, style["colour"]) for at in spreads.get(name, ())]
        legend.append(legend_of(name, style, name not in series))
    return (f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(words)}">{"".join(parts)}</svg>'
            f'<div class="legend">{" ".join(legend)}</div>')


BAR, GAP, NAMES, NUMBERS = 20, 8, 210, 90


def bars(values, words, unit):
    """{name: value}, from zero on, one below the other."""
    most = max(values.values()) or 1
    reach, height = WIDTH - NAMES - NUMBERS, TOP + (BAR + GAP) * len(values) + 6
    parts = [f'<text class="words" x="8" y="{TOP - 16}">{escape(words)}</text>']
    for i, (name, value) in enumerate(values.items()):
        top, width = TOP + (BAR + GAP) * i, reach * value / most
        parts.append(f'<text x="{NAMES - 8}" y="{top + 14}" text-anchor="end">{escape(name)}</text>'
                     f'<rect x="{NAMES}" y="{top}" width="{width:.1f}" height="{BAR}" fill="{style_of(name, i)["colour"]}"/>'
                     f'<text x="{NAMES + width + 6:.1f}" y="{top + 14}">{escape(unit.format(value))}</text>')
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(words)}">{"".join(parts)}</svg>'
