"""The time line of ranks: a picture that timeline.js draws, from data on the page. A row is a communicator of a rank, or a
lane of its asynchronous operations, which may overlap."""
import json
import os

from harness.page import escape

STYLE = """
.timeline { border: 1px solid #d5dae1; padding: .6em } .timeline svg { width: 100%; display: block; user-select: none }
.timeline text { font: 11px system-ui, sans-serif; fill: #333c48 } .timeline text.rank { font-weight: 600; fill: #1c2430 }
.timeline .cursor { fill: #0b5cad; opacity: .12 } .timeline button { font: inherit; padding: .15em .7em; margin-right: .3em }
.timeline .legend { margin-top: .5em } .timeline .swatch { display: inline-block; width: 14px; height: 10px; margin-right: .35em }
#tip { position: fixed; display: none; background: #1c2430; color: #fff; padding: .4em .6em; font-size: 13px; max-width: 460px;
  white-space: pre-line; pointer-events: none; z-index: 9; border-radius: 3px }
"""
COLOURS = {"all_reduce": "#0b5cad", "reduce_scatter": "#00897b", "all_gather": "#4c956c", "broadcast": "#b3730f", "reduce": "#6a4c93",
           "barrier": "#777777", "all_to_all": "#8f2d56", "send": "#c2571a", "recv": "#e0a11b", "gather": "#3d5a80",
           "scatter": "#5f0f40"}
SPARE = ("#98703b", "#2b7a9b", "#7a8b3b", "#a0527c")
MOST_LANES = 6


def colour_of(name, names):
    if name in COLOURS:
        return COLOURS[name]
    alike = next((c for known, c in COLOURS.items() if name.startswith(known)), None)
    return alike or SPARE[[n for n in names if n not in COLOURS].index(name) % len(SPARE)]


class Texts:
    """Each text once; a number stands for it."""

    def __init__(self):
        self.numbers = {"": 0}

    def number(self, text):
        return self.numbers.setdefault(text, len(self.numbers))


def lane_of(ends, op):
    """The first one that is free, or the one that is free next."""
    for i, end in enumerate(ends):
        if end <= op.begin:
            ends[i] = op.begin + op.duration
            return i
    if len(ends) < MOST_LANES:
        ends.append(op.begin + op.duration)
        return len(ends) - 1
    i = ends.index(min(ends))
    ends[i] = max(ends[i], op.begin + op.duration)
    return i


def has_threads(tracks):
    """Whether several ranks of one communicator are in that process."""
    comms = [track.comm for track in tracks]
    return len(set(comms)) < len(comms)


def labels_of(tracks):
    """What stands before each track: the process's rank before its first one; before each its own where ranks are threads."""
    by_process = {}
    for track in tracks:
        by_process.setdefault(track.process, []).append(track)
    labels = {}
    for process, its in by_process.items():
        for track in its:
            labels[id(track)] = f"rank {track.rank}" if has_threads(its) else ""
        if not has_threads(its):
            labels[id(its[0])] = process.split(":")[0].split(" of ")[0]
    return [labels[id(track)] for track in tracks]


def lanes_of(track):
    """Lists of operations: those that were waited for, and lanes of the others."""
    lanes, ends = [[]], []
    for op in track.operations:
        lane = lane_of(ends, op) + 1 if op.is_async else 0
        while len(lanes) <= lane:
            lanes.append([])
        lanes[lane].append(op)
    return lanes


def rows_of(tracks):
    """[(rank's label or "", communicator's, operations)]. A rank without an operation has an empty row."""
    rows = []
    for track, label in zip(tracks, labels_of(tracks)):
        lanes = lanes_of(track)
        for i, operations in enumerate(lanes):
            if operations or (i == 0 and (label or len(lanes) == 1)):
                name = track.name() + (", asynchronous" if i else "") if i < 2 else ""
                rows.append((label if i == 0 else "", name, operations))
    return rows


def entry(row, op, origin, texts):
    """As timeline.js reads it."""
    args = op.args
    return [row, round(op.begin - origin, 3), round(op.duration, 3), round(op.wait, 3), texts.number(op.name),
            args.get("sequence", -1), args.get("bytes", 0), texts.number(str(args.get("dtype", ""))),
            texts.number(str(args.get("algorithm", ""))), texts.number(str(args.get("state", ""))),
            texts.number(str(args.get("label", ""))), op.late, texts.number(str(args.get("waits", ""))), int("time" in args),
            op.track.rank]


def script_text(document):
    """For a script element of HTML and XML."""
    return (json.dumps(document, separators=(",", ":")).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def legend_of(colours):
    """A call and its variant for blocks of different lengths have one colour."""
    alike = {}
    for name, colour in colours.items():
        alike.setdefault(colour, []).append(name)
    return "".join(f'<span><i class="swatch" style="background: {colour}"></i>{escape(", ".join(names))}</span>'
                   for colour, names in alike.items())


def html_of(tracks):
    rows = rows_of(tracks)
    origin = min(op.begin for _, _, operations in rows for op in operations)
    names = sorted({op.name for _, _, operations in rows for op in operations})
    texts = Texts()
    operations = [entry(i, op, origin, texts) for i, (_, _, ops) in enumerate(rows) for op in ops]
    data = {"rows": [[rank, comm] for rank, comm, _ in rows], "operations": operations, "texts": list(texts.numbers),
            "colours": {name: colour_of(name, names) for name in names}}
    with open(os.path.join(os.path.dirname(__file__), "timeline.js"), encoding="utf-8") as file:
        script = file.read()
    legend = legend_of(data["colours"])
    return f"""<div class="timeline" id="timeline">
<p>{len(operations):,} operations. A row is a communicator of a rank, by its name or number. Drag over the picture to see a part
of it; the pointer shows what an operation is.
<button type="button" id="zoom-all">all</button><button type="button" id="zoom-in">+</button><button type="button" id="zoom-out">-</button>
<button type="button" id="move-left">&#8592;</button><button type="button" id="move-right">&#8594;</button></p>
<svg id="timeline-picture" role="img" aria-label="time line of the ranks"></svg>
<div class="legend">{legend}<span><i class="swatch" style="background: #0b5cad; opacity: .3"></i>pale: waits for the rank that came last</span>
<span><i class="swatch" style="border: 2px solid #d1002b; background: none"></i>failed, or under way when it was read</span></div>
<noscript>The time line needs JavaScript; the tables below do not.</noscript></div><div id="tip"></div>
<script type="application/json" id="timeline-data">{script_text(data)}</script>
<script>//<![CDATA[
{script}//]]></script>
"""
