"""What the reports as HTML share: the frame of a page that needs no other file, its style, and tables. A page is
well-formed XML, too."""
import html
import re

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1c2430; background: #fff; margin: 2em auto; max-width: 1320px;
  padding: 0 1em }
h1 { font-size: 1.6em } h2 { font-size: 1.25em; margin-top: 2em; border-bottom: 1px solid #d5dae1 } h3 { font-size: 1.05em }
table { border-collapse: collapse; background: #fff; margin: 1em 0; display: block; overflow-x: auto }
td, th { border: 1px solid #d5dae1; padding: .3em .6em; text-align: right; vertical-align: top; white-space: nowrap }
th { background: #f3f5f8 }
td:first-child, th:first-child { text-align: left }
.peers td { text-align: left; white-space: normal }
.reached { background: #d8f0dc } .nearly { background: #fdf1c7 } .missed { background: #f9d5d3 }
.none { color: #6b7480 } small { color: #5b6675 }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(520px, 100%), 1fr)); gap: 1em }
.chart { background: #fff; border: 1px solid #d5dae1; padding: .6em; max-width: 720px }
.chart svg { width: 100%; height: auto } .chart text { font: 12px system-ui, sans-serif; fill: #333c48 }
.chart text.words { font-size: 14px; fill: #1c2430 }
.legend svg { width: 26px; height: 8px } .legend span { display: inline-block; margin-right: 1em; font-size: 13px }
.grid { stroke: #e4e8ed; stroke-width: 1 } .axis { stroke: #8a93a0; stroke-width: 1 } .level { stroke: #555; stroke-width: 1.5 }
.unseen { fill: transparent } .warning { background: #f9d5d3; padding: .6em }
details { margin: .6em 0 } summary { cursor: pointer } pre { overflow-x: auto; background: #f3f5f8; padding: .6em }
"""


def escape(text):
    """As html.escape; a character that XML does not have becomes a question mark in a diamond."""
    return html.escape(re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text))


class Cell(str):
    """A <td> element, for a table that has it as it is."""


def table(head, rows, kind=""):
    """Of texts and Cells."""
    def cell(word):
        return word if isinstance(word, Cell) else f"<td>{escape(word)}</td>"

    top = f"<tr>{''.join(f'<th>{escape(word)}</th>' for word in head)}</tr>" if head else ""
    body = "".join(f"<tr>{''.join(cell(word) for word in row)}</tr>" for row in rows)
    return f"<table{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{top}{body}</table>"


def folded(words, inside):
    return f"<details><summary>{escape(words)}</summary>{inside}</details>"


def whole(title, body, style=""):
    """The page. body begins below the title."""
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
            f'<meta name="viewport" content="width=device-width"/><title>{escape(title)}</title><style>{STYLE}{style}</style></head>'
            f"<body><h1>{escape(title)}</h1>{body}</body></html>\n")
