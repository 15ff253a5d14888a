"""Results of the perf programs: those of one collective in common charts."""
from harness import curves, page
from harness.charts import SIZE_TICKS, pair
from harness.page import escape
from harness.sizes import text_of

# What may differ between curves, and how a curve's name says it.
PARTS = (("library", "{}"), ("ranks", "{} ranks"), ("nodes", "{} nodes"), ("memory", "{} memory"), ("dtype", "{}"), ("op", "{}"),
         ("root", "root {}"), ("place", "{}"), ("zero_copy", "zero copy {}"), ("blocking", "blocking {}"),
         ("load", "{} busy processes"), ("path", "{}"))

MOST_CURVES = 30        # in a chart: more have no colours of their own


class Curve:
    """The rows of one file that differ in size alone."""

    def __init__(self, source, row):
        data, settings = source.data, source.data.get("settings", {})
        self.about = {"library": data.get("library", ""), "ranks": data["ranks"], "nodes": data.get("nodes", 1),
                      "memory": data.get("memory", "host"), "dtype": row["dtype"], "op": row["op"], "root": row.get("root", -1),
                      "place": "in place" if row.get("in_place") else "out of place",
                      "zero_copy": "on" if settings.get("zero_copy") else "off",
                      "blocking": "on" if settings.get("blocking", 1) else "off", "load": settings.get("load", 0),
                      "path": source.path}
        self.rows, self.name = [], ""

    def key(self):
        return tuple(map(str, self.about.values()))


def curves_of(found):
    """{collective: curves}."""
    groups = {}
    for source in found:
        curves_here = groups.setdefault(source.data["program"].removesuffix("_perf"), {})
        for row in source.data["rows"]:
            curve = Curve(source, row)
            curves_here.setdefault(curve.key(), curve).rows.append(row)
    return {name: list(by_key.values()) for name, by_key in groups.items()}


def give_names(group):
    """The number of ranks, and what else differs; the file where nothing else does."""
    differ = [key for key, _ in PARTS if key == "ranks" or len({str(c.about[key]) for c in group}) > 1]
    words = dict(PARTS)
    without_path = [tuple(str(c.about[key]) for key in differ if key != "path") for c in group]
    if len(set(without_path)) == len(group):
        differ = [key for key in differ if key != "path"]
    for curve in group:
        curve.name = ", ".join(words[key].format(curve.about[key]) for key in differ)


def best_rows(curve, key):
    """[(size, value)]; the last of two rows of one size counts."""
    return sorted({row["bytes"]: row[key] for row in curve.rows if row["bytes"] and row[key] > 0}.items())


def ratio_chart(group):
    """How many times as long the first one takes."""
    base, *others = group
    times, found = dict(best_rows(base, "time_us")), {}
    for curve in others:
        found[curve.name] = [(size, times[size] / us) for size, us in best_rows(curve, "time_us") if size in times]
    if not any(found.values()):
        return ""
    return curves.draw({name: at for name, at in found.items() if at}, {}, {}, "how many times as fast as the first curve", SIZE_TICKS,
                       level=1, names=[curve.name for curve in group]) + (
        f"<p><small>The first curve is \u201c{escape(base.name)}\u201d: its time divided by that of the other. Above 1 the other is "
        "faster.</small></p>")


def spreads_of(group):
    """From the median to the 99th percentile, where they were measured."""
    found = {}
    for curve in group:
        rows = [row for row in curve.rows if row["bytes"] and row.get("p50_us", 0) > 0 and row.get("p99_us", 0) > 0]
        if rows:
            found[curve.name] = [(row["bytes"], row["p50_us"], row["p99_us"]) for row in rows]
    return found


def wrong_values(group):
    return sum(row["wrong"] for curve in group for row in curve.rows if isinstance(row.get("wrong"), int))


def numbers_of(group):
    has_percentiles = any("p50_us" in row for curve in group for row in curve.rows)
    head = ["curve", "size", "time, us", "algbw, GB/s", "busbw, GB/s"] + (["median, us", "99 %, us"] if has_percentiles else [])
    rows = []
    for curve in group:
        for row in curve.rows:
            rows.append([curve.name, text_of(row["bytes"]) if row["bytes"] else "-", f"{row['time_us']:.4g}", f"{row['algbw']:.4g}",
                         f"{row['busbw']:.4g}"])
            if has_percentiles:
                rows[-1] += [f"{row[key]:.4g}" if key in row else "" for key in ("p50_us", "p99_us")]
    return page.table(head, rows)


def charts_of(group):
    sized = [c for c in group if best_rows(c, "time_us")]
    if not sized:
        return pair(curves.bars({c.name: c.rows[-1]["time_us"] for c in group}, "time of a call, us", "{:.4g} us"))
    left_out = len(sized) - MOST_CURVES
    sized = sized[:MOST_CURVES]
    more = f"<p>{left_out} more curves are in the table alone.</p>" if left_out > 0 else ""
    return more + pair(curves.draw({c.name: best_rows(c, "time_us") for c in sized}, spreads_of(sized), {}, "time of a call, us", SIZE_TICKS),
                curves.draw({c.name: best_rows(c, "busbw") for c in sized}, {}, {}, "bus bandwidth, GB/s", SIZE_TICKS),
                ratio_chart(sized))


def html_of(found, _tools):
    parts = []
    for collective, group in curves_of(found).items():
        give_names(group)
        libraries = ", ".join(sorted({str(c.about["library"]) for c in group}))
        parts.append(f"<h2>{escape(collective)}</h2><p>Measured with {escape(libraries)}.</p>")
        if wrong_values(group):
            parts.append(f'<p class="warning">{wrong_values(group)} elements of results were wrong.</p>')
        if spreads_of(group):
            parts.append("<p>The upright lines go from the median to the 99th percentile.</p>")
        parts.append(charts_of(group) + page.folded("The numbers", numbers_of(group)))
    return "".join(parts)
