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
        return "<td></td>"
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
    return f'<td class="{worst}">{"<br/>".join(lines)}</td>'


def targets_table(table):
    ranks = sorted({r for _, row in table for r in row})
    head = "".join(f"<th>{r} ranks</th>" for r in ranks)
    rows = "".join(f"<tr><td>{escape(name)}</td>" + "".join(verdict_cell(row.get(r)) for r in ranks) + "</tr>"
                   for name, row in table)
    return f"<table><tr><th></th>{head}</tr>{rows}</table>"


def limits_text(limits, points):
    rows = "".join(f"<tr><td>{escape(b['pattern'])}</td><td>{b['cores']}</td><td>{text_of(b['bytes'])}</td>"
                   f"<td>{b['GBps']:.1f}</td><td>{b['low']:.1f} - {b['high']:.1f}</td></tr>"
                   for b in (limits or {}).get("bandwidth", ()))
    table = f"<table><tr><th>pattern</th><th>cores</th><th>buffer</th><th>GB/s</th><th>medians</th></tr>{rows}</table>" if rows else ""
    about = bounds.__doc__.strip().splitlines()
    gap = about.index("")
    return ("".join(f"<p>{escape(message)}</p>" for message in tables.limit_messages(limits, points)) + table
            + f"<p><small>{escape(' '.join(about[:gap]))}</small></p><pre>{escape(chr(10).join(about[gap + 1:]))}</pre>")


def head_of(results):
    parts = []
    if results.failed:
        parts.append(f'<p class="warning"><b>{escape(results.failed)}</b></p>')
    parts += [f'<p class="warning">{escape(message)}</p>' for message in results.why_incomplete()]
    parts.append(f"<p>Commit of Tutti: {escape(results.commit)}.</p>")
    if results.notes:
        parts.append("<ul>" + "".join(f"<li>{escape(note)}</li>" for note in results.notes) + "</ul>")
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(str(value))}</td></tr>"
                   for name, value in results.machine.items() if value != "")
    parts.append(f'<h2>The machine</h2><table class="peers">{rows}</table>{limits_text(results.limits, results.points)}')
    rows = "".join("<tr>" + "".join(f"<td>{escape(word)}</td>" for word in line) + "</tr>"
                   for line in results.peer_lines())
    parts.append('<h2>Who is compared</h2><table class="peers"><tr><th>over</th><th>contender</th><th>version</th>'
                 f"<th>settings</th></tr>{rows}</table>")
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
