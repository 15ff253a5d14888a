"""A comparison's results as Markdown tables."""
from harness import study, targets
from harness.figures import significant, us
from harness.sizes import text_of
from harness.spread import median

# Of the limits: key, words, unit, decimals.
LIMIT_WORDS = (("flag_ns", "a flag from core to core", "ns", 0), ("loopback_latency_us", "loopback TCP one way", "us", 2),
               ("loopback_one_way_GBps", "loopback TCP in one direction", "GB/s", 2),
               ("loopback_GBps", "in both directions together", "GB/s", 2))


def cell(spread):
    if not spread:
        return ""
    low, middle, high = map(significant, spread)
    return f"**{middle}** ({low}-{high})"


def size_text(point):
    return text_of(point.size) if point.size else "-"


def table_of(points):
    """Markdown: medians in microseconds, and the best peer's time to each of ours, round by round."""
    names = list(dict.fromkeys(name for p in points for name in p.times))
    ours = [n for n in names if not targets.is_peer(n)]
    has_peers = len(names) > len(ours)
    head = ["size", *(f"{n} (us)" for n in names)]
    if has_peers:
        head += [*(f"best peer / {n}" for n in ours), "best peer"]
    rows = []
    for p in points:
        row = [size_text(p)] + [us(median(p.times[n])) if n in p.times else "" for n in names]
        if has_peers:
            row += [cell(targets.ratio_to(p, n)) for n in ours]
            row.append(targets.best_peer(p) or "")
        rows.append(row)
    return study.table(head, rows)


def verdict_text(verdict):
    if verdict.worst is None:
        return f"{verdict.target:g}x: not measured"
    at = f" ({text_of(verdict.worst_size)})" if verdict.worst_size else ""
    return (f"{verdict.target:g}x: {significant(verdict.worst)} at worst{at}, {significant(verdict.mean)} in the mean: "
            f"{verdict.state}")


def targets_of(table):
    ranks = sorted({r for _, row in table for r in row})
    rows = [[name] + ["; ".join(verdict_text(v) + (f" ({v.against})" if len(row[r]) > 1 else "") for v in row[r]) if r in row else ""
                      for r in ranks] for name, row in table]
    return study.table(["", *(f"{r} ranks" for r in ranks)], rows)


def limit_messages(limits, points):
    """What the machine's limits are, without the bandwidths, and what follows for the targets."""
    if not limits:
        return ["The machine's limits were not measured.", *targets.distance_of_cores(points, limits)]
    found = [f"{words} {limits[key]:.{digits}f} {unit} ({low:.{digits}f}-{high:.{digits}f})"
             for key, words, unit, digits in LIMIT_WORDS if limits.get(key) for low, high in [limits["ranges"][key]]]
    times = f"{limits['measured']} measurements" if limits["measured"] > 1 else "one measurement"
    head = f"The machine's limits, the best of all tries in {times} (their medians)"
    return [f"{head}: {'; '.join(found)}." if found else f"{head}: see below.", *targets.distance_of_cores(points, limits)]


def bandwidth_lines(limits):
    """A line for each pattern."""
    patterns = {}
    for row in (limits or {}).get("bandwidth", ()):
        key = f"{row['pattern']}, {row['cores']} core{'s' if row['cores'] > 1 else ''}, GB/s"
        patterns.setdefault(key, []).append(f"{text_of(row['bytes'])} {row['GBps']:.1f} ({row['low']:.1f}-{row['high']:.1f})")
    return [f"{name}: {', '.join(cells)}." for name, cells in patterns.items()]
