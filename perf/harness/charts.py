"""The charts of points of measurement in one place: times, bandwidths, and ratios to the best peer."""
from harness import bounds, curves, targets
from harness.sizes import text_of
from harness.spread import median, middle_half

SIZE_TICKS = [(4 ** k, text_of(4 ** k)) for k in range(0, 20)]


def bus_factor(collective, ranks):
    """As nccl-tests defines it: what makes a link's speed of size / time."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in ("broadcast", "reduce", "barrier"):
        return 1
    return (ranks - 1) / ranks


def pair(*drawn):
    return f"""<div class="pair">{''.join(f'<div class="chart">{one}</div>' for one in drawn if one)}</div>"""


def limits_of(limits, place, points):
    """{name: [(size, microseconds)]}."""
    found = {}
    for p in points:
        for name, microseconds in bounds.lines_at(limits, place, p.size).items():
            found.setdefault(name, []).append((p.size, microseconds))
    return found


def charts_of(limits, place, points):
    names = list(dict.fromkeys(name for p in points for name in p.times))
    sized = [p for p in points if p.size]
    if not sized:
        return ""
    times = {n: [(p.size, median(p.times[n])) for p in sized if n in p.times] for n in names}
    spreads = {n: [(p.size, *middle_half(p.times[n])[::2]) for p in sized if n in p.times] for n in names}
    lines = limits_of(limits, place, sized)
    factor = bus_factor(place.collective, place.ranks)

    def bandwidth(curve):
        return [(size, *(size * factor / us / 1e3 for us in found)) for size, *found in curve]

    throughput = {n: bandwidth(c) for n, c in lines.items() if n not in ("flag", "loopback latency")}
    return pair(curves.draw(times, spreads, lines, "time of a call, us", SIZE_TICKS),
                curves.draw({n: bandwidth(c) for n, c in times.items()}, {n: bandwidth(c) for n, c in spreads.items()}, throughput,
                            "bus bandwidth, GB/s", SIZE_TICKS), ratio_chart(sized, names))


def ratio_chart(points, names):
    """The best peer's time to ours; nothing where no peer was measured."""
    found = {n: [(p.size, *ratio) for p in points if (ratio := targets.ratio_to(p, n))]
             for n in names if not targets.is_peer(n)}
    if not any(found.values()):
        return ""
    return curves.draw({n: [(size, middle) for size, _, middle, _ in at] for n, at in found.items()},
                       {n: [(size, low, high) for size, low, _, high in at] for n, at in found.items()}, {},
                       "time of the best peer / time of Tutti; above 1 Tutti is faster", SIZE_TICKS, level=1)
