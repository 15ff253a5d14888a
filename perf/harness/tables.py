"""A comparison's results as Markdown tables."""
from harness import machine, targets
from harness.sizes import text_of
from harness.spread import median


def us(value):
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def cell(spread):
    if not spread:
        return ""
    low, middle, high = spread
    return f"**{middle:.2f}** ({low:.2f}-{high:.2f})"


def size_text(point):
    return text_of(point.size) if point.size else "-"


def table_of(points):
    """Markdown: medians in microseconds, and the best peer's time to each of ours, round by round."""
    names = list(dict.fromkeys(name for p in points for name in p.times))
    ours = [n for n in names if not targets.is_peer(n)]
    has_peers = len(names) > len(ours)
    lines = ["| size | " + " | ".join(f"{n} (us)" for n in names)
             + "".join(f" | best peer / {n}" for n in ours if has_peers) + (" | best peer |" if has_peers else " |")]
    lines.append("|---" * (lines[0].count(" | ") + 1) + "|")
    for p in points:
        row = [size_text(p)] + [us(median(p.times[n])) if n in p.times else "" for n in names]
        if has_peers:
            row += [cell(targets.ratio_to(p, n, targets.PEERS)) for n in ours]
            row.append(targets.best_peer(p) or "")
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def verdict_text(verdict):
    if verdict.worst is None:
        return f"{verdict.target:g}x: not measured"
    at = f" ({text_of(verdict.worst_size)})" if verdict.worst_size else ""
    return f"{verdict.target:g}x: {verdict.worst:.2f} at worst{at}, {verdict.mean:.2f} in the mean: {verdict.state}"


def targets_of(table):
    ranks = sorted({r for _, row in table for r in row})
    lines = ["| | " + " | ".join(f"{r} ranks" for r in ranks) + " |", "|---" * (len(ranks) + 1) + "|"]
    for name, row in table:
        cells = ["; ".join(verdict_text(v) + (f" ({v.against})" if len(row[r]) > 1 else "") for v in row[r])
                 if r in row else "" for r in ranks]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def markdown(results):
    parts = ["# Tutti and its peers", machine.one_line(results.machine)]
    if results.failed:
        parts.append(f"**{results.failed}**")
    parts += [f"- {note}" for note in results.notes]
    parts.append("| over | contender | version | settings |\n|---|---|---|---|\n" + "\n".join(
        "| " + " | ".join(line) + " |" for line in results.peer_lines()))
    parts += [targets_of(table) for table in results.verdict_tables() if table]
    if results.shortfalls():
        parts.append("Where targets were not reached:\n\n" + "\n".join(f"- {s}" for s in results.shortfalls()))
    for place, dtype, points in results.places():
        parts += [f"## {place}, {dtype}", table_of(points)]
    return "\n\n".join(parts) + "\n"
