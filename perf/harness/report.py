"""A comparison's results as Markdown, and as one HTML page of the same with charts, which needs no other file."""
import re

from harness import bounds, machine, page, study, tables, targets
from harness.charts import charts_of
from harness.page import escape

STATES = (("missed", "missed: "), ("nearly", "% of it"), ("reached", ": reached"), ("none", "x: not measured"))   # the worst first


def listed(lines):
    return "\n".join(f"- {line}" for line in lines)


def markdown(results):
    first, others, bf16 = (tables.targets_of(table) if table else "" for table in results.verdict_tables())
    parts = ["# Tutti and its peers", f"Commit of Tutti: {results.commit}.", machine.one_line(results.machine)]
    parts += [f"**{message}**" for message in [results.failed, *results.why_incomplete()] if message]
    parts += [listed(results.notes),
              listed(tables.limit_messages(results.limits, results.points) + tables.bandwidth_lines(results.limits)),
              study.table(("over", "contender", "version", "settings"), results.peer_lines()),
              f"Settings: {', '.join(f'{name} {value}' for name, value in results.settings.items())}. Times are medians over the "
              "rounds of the mean time of a call; a ratio is taken within each round, the best peer's time by ours: median, and in "
              "brackets the middle half. Above 1 Tutti is faster.",
              f"Targets of f32 sum all_reduce: the worst of those sizes of a class that were measured counts, from "
              f"{targets.FLOOR:.0%} on as nearly reached.", first,
              others and "The other collectives, every size:", others, bf16 and "bf16's speed per byte against f32's:", bf16]
    if results.shortfalls():
        parts += ["Where targets were not reached:", listed(results.shortfalls())]
    for place, dtype, points in results.places():
        parts += [f"## {place}, {dtype}", tables.table_of(points)]
    return "\n\n".join(part for part in parts if part) + "\n"


def bold(text):
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text))


def html_of_cell(text):
    state = next((state for state, words in STATES if words in text), "")
    return page.Cell(f'<td class="{state}">{bold(text)}</td>')


def html_of_block(block):
    if block.startswith("## "):
        return f"<h2>{escape(block[3:])}</h2>"
    if block.startswith("- "):
        return f"<ul>{''.join(f'<li>{bold(line[2:])}</li>' for line in block.splitlines())}</ul>"
    if block.startswith("| "):
        head, _, *rows = [line[2:-2].split(" | ") for line in block.splitlines()]
        return page.table(head, [[html_of_cell(text) for text in row] for row in rows])
    return f"""<p{' class="warning"' if block.startswith("**") else ''}>{bold(block)}</p>"""


def html_of(results):
    charts = {f"## {place}, {dtype}": charts_of(results.limits, place, points) for place, dtype, points in results.places()}
    parts = [html_of_block(block) + charts.get(block, "") for block in markdown(results).strip().split("\n\n")[1:]]
    return page.whole("Tutti and its peers", "".join(parts) + f"<h2>Limits in the charts</h2><pre>{escape(bounds.__doc__)}</pre>")
