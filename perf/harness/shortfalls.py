"""Targets that were not reached, in messages: by how much, at which size, and what the machine's limits say to it. What
else holds a size back is in docs/measurements/."""
from harness import bounds, targets
from harness.figures import percent, significant, us
from harness.sizes import text_of
from harness.spread import median

FAR_BELOW = 10       # of the time asked for: it does not explain much


def messages(verdict_tables, limits):
    """verdict_tables: [[(row's name, {ranks: [verdicts]})], ...]."""
    verdicts = [v for table in verdict_tables for _, row in table for cell in row.values() for v in cell]
    return [message(v, limits) for v in verdicts if v.worst is not None and v.worst < v.target]


def message(verdict, limits):
    at = f" at {text_of(verdict.worst_size)}" if verdict.worst_size else ""
    head = (f"{verdict.what}, {verdict.ranks} ranks: {significant(verdict.worst)} of the {verdict.target:g} asked "
            f"({percent(verdict.worst / verdict.target)} %){at}")
    ours, (theirs, who) = median(verdict.point.times[verdict.ours]), other(verdict)
    needed = theirs / verdict.target
    why = best_peer(verdict) if verdict.against == targets.LIMIT else limit(verdict, limits, needed)
    return f"{head}: {us(ours)} us against {us(theirs)} of {who}; {us(needed)} us would reach it{why}."


def other(verdict):
    """(the time that ours is measured by, whose it is)."""
    if verdict.theirs:
        return verdict.theirs, {targets.LIMIT: "the limit 2 in 2 out"}.get(verdict.against, verdict.against)
    peer = targets.best_peer(verdict.point, targets.wanted_of(verdict.against))
    return median(verdict.point.times[peer]), peer


def best_peer(verdict):
    peer = targets.best_peer(verdict.point)
    return f"; the best peer, {peer}, takes {us(median(verdict.point.times[peer]))} us" if peer else "; no peer was measured"


def limit(verdict, limits, needed):
    """The highest of the limits that hold for that way, and what it explains."""
    lines = bounds.lines_at(limits, verdict.point.place, verdict.worst_size)
    lines.pop("copy" if verdict.ours == targets.ZERO_COPY else "2 in 2 out", None)
    name = max(lines, key=lines.get, default=None)
    if name and lines[name] > needed:
        return f", which the limit {name}, {us(lines[name])} us, does not allow"
    if name and lines[name] >= needed / FAR_BELOW:
        return f", and the limit {name} is {us(lines[name])} us"
    shared = sharing(verdict.ranks, limits)
    if not name:
        return f"; no limit of the machine was measured for this{shared}"
    return f"; the highest limit that was measured for this, {name}, is {us(lines[name])} us: it does not explain the difference{shared}"


def sharing(ranks, limits):
    cores = (limits or {}).get("cores")
    if not cores or ranks <= cores:
        return ""
    return f"; the {ranks} ranks share {cores} core{'s' if cores > 1 else ''}, and no limit was measured of how often and how fast they change"
