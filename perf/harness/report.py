"""A comparison's results as one HTML page that needs no other file."""
from harness import bounds, page, tables, targets
from harness.charts import charts_of, times_table
from harness.figures import significant
from harness.page import escape
from harness.sizes import text_of


def state_class(verdict):
    if verdict.worst is None:
        return "none"
    if verdict.worst >= verdict.target:
        return "reached"
    return "nearly" if verdict.worst >= targets.FLOOR * verdict.target else "missed"


def verdict_cell(verdicts):
    if not verdicts:
        return page.Cell("<td></td>")
    order = ("missed", "nearly", "reached", "none")
    worst = min((state_class(v) for v in verdicts), key=order.index)
    lines = []
    for v in verdicts:
        against = f" ({escape(v.against)})" if len(verdicts) > 1 else ""
        if v.worst is None:
            lines.append(f"{v.target:g}x{against}: not measured")
            continue
        at = f" ({text_of(v.worst_size)})" if v.worst_size else ""
        sizes = "; ".join(f"{text_of(s) if s else 'no data'}: {tables.cell(found).replace('**', '')}" for s, found in v.sizes.items())
        lines.append(f'<span title="{escape(sizes)}">{v.target:g}x{against}: <b>{significant(v.worst)}</b> at worst{at}, '
                     f'{significant(v.mean)} in the mean<br/><small>{v.state}</small></span>')
    return page.Cell(f'<td class="{worst}">{"<br/>".join(lines)}</td>')


def targets_table(table):
    ranks = sorted({r for _, row in table for r in row})
    return page.table(["", *(f"{r} ranks" for r in ranks)],
                      [[name, *(verdict_cell(row.get(r)) for r in ranks)] for name, row in table])


def limits_text(limits, points):
    rows = [(b["pattern"], str(b["cores"]), text_of(b["bytes"]), f"{b['GBps']:.1f}", f"{b['low']:.1f} - {b['high']:.1f}")
            for b in (limits or {}).get("bandwidth", ())]
    table = page.table(("pattern", "cores", "buffer", "GB/s", "medians"), rows) if rows else ""
    about, _, names = bounds.__doc__.strip().partition("\n\n")
    return ("".join(f"<p>{escape(message)}</p>" for message in tables.limit_messages(limits, points)) + table
            + f"<p><small>{escape(about)}</small></p><pre>{escape(names)}</pre>")


def head_of(results):
    parts = []
    if results.failed:
        parts.append(f'<p class="warning"><b>{escape(results.failed)}</b></p>')
    parts += [f'<p class="warning">{escape(message)}</p>' for message in results.why_incomplete()]
    parts.append(f"<p>Commit of Tutti: {escape(results.commit)}.</p>")
    if results.notes:
        parts.append("<ul>" + "".join(f"<li>{escape(note)}</li>" for note in results.notes) + "</ul>")
    rows = [(name, str(value)) for name, value in results.machine.items() if value != ""]
    parts.append(f'<h2>The machine</h2>{page.table((), rows, "peers")}{limits_text(results.limits, results.points)}')
    peers = page.table(("over", "contender", "version", "settings"), results.peer_lines(), "peers")
    parts.append(f"<h2>Who is compared</h2>{peers}")
    settings = ", ".join(f"{name} {value}" for name, value in results.settings.items())
    parts.append(f"<p>Settings: {escape(settings)}. Times are medians over the rounds of the mean time of a call; a ratio is "
                 "taken within each round, the best peer's time by ours: median, and in brackets the middle half, which the curves "
                 "show as upright lines. Above 1 Tutti is faster.</p>")
    return "".join(parts)


def html_of(results):
    parts = [head_of(results), "<h2>Targets</h2><p>f32 sum all_reduce; the worst of "
             "those sizes of a class that were measured counts. Green: reached; yellow: at least 85 %; red: less. The sizes show under the pointer.</p>"]
    first, others, bf16 = results.verdict_tables()
    parts.append(targets_table(first))
    if others:
        parts.append(f"<p>The other collectives, every size:</p>{targets_table(others)}")
    if bf16:
        parts.append(f"<p>bf16's speed per byte against f32's:</p>{targets_table(bf16)}")
    if results.shortfalls():
        items = "".join(f"<li>{escape(message)}</li>" for message in results.shortfalls())
        parts.append(f"<p>Where targets were not reached:</p><ul>{items}</ul>")
    for place, dtype, points in results.places():
        parts.append(f"<h2>{escape(str(place))}, {escape(dtype)}</h2>{charts_of(results.limits, place, points)}"
                     f"{times_table(points)}")
    return page.whole("Tutti and its peers", "".join(parts))
