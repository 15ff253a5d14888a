"""chrome_trace.py FILE...: whether viewers of the Trace Event Format (Perfetto, chrome://tracing) show all of these files.

Of each event the fields that the format asks for, and what those viewers drop without a word: an asynchronous operation
without its other end, and blocks of one track that overlap without one being inside of the other. Exits with 1 and says why."""
import json
import numbers
import sys

NEEDED = {"X": {"name", "ph", "ts", "dur", "pid", "tid"}, "b": {"name", "cat", "id2", "ph", "ts", "pid", "tid"},
          "e": {"name", "cat", "id2", "ph", "ts", "pid", "tid"}, "M": {"name", "ph", "pid", "args"}}
# Of each sort of metadata: its argument and the argument's type.
METADATA = {"process_name": ("name", str), "thread_name": ("name", str), "process_sort_index": ("sort_index", int),
            "thread_sort_index": ("sort_index", int)}
ROUNDING = 0.002        # microseconds: begin and length are rounded to a nanosecond, each by itself


def fields(event):
    assert event.get("ph") in NEEDED, f"the phase {event.get('ph')!r}"
    assert NEEDED[event["ph"]] <= set(event), f"without {sorted(NEEDED[event['ph']] - set(event))}"
    assert all(isinstance(event[key], str) for key in ("name", "cat") if key in event), "a name or category that is no text"
    assert all(type(event[key]) is int for key in ("pid", "tid") if key in event), "a process or thread that is no number"
    for key in ("ts", "dur"):
        assert key not in event or (isinstance(event[key], numbers.Real) and event[key] >= 0), f"{key} {event.get(key)!r}"
    # With an "id" of all processes Perfetto shows the operation to none of them.
    assert "id2" not in event or type(event["id2"].get("local")) is str and len(event["id2"]) == 1, "an id that is not its process's"
    if event["ph"] == "M":
        key, kind = METADATA[event["name"]]
        assert type(event["args"].get(key)) is kind, f"metadata without {key}"


def pairs(events):
    begun = {}
    for event in events:
        key = event["pid"], event["cat"], event["id2"]["local"]
        if event["ph"] == "b":
            assert key not in begun, f"{key} begins twice"
            begun[key] = event
        else:
            begin = begun.pop(key, None)
            assert begin and begin["name"] == event["name"] and begin["ts"] <= event["ts"], f"{key} ends and has not begun"
    assert not begun, f"without an end: {sorted(begun)}"


def nesting(blocks):
    ends = []
    for block in sorted(blocks, key=lambda b: (b["ts"], -b["dur"])):
        while ends and ends[-1] <= block["ts"] + ROUNDING:
            ends.pop()
        end = block["ts"] + block["dur"]
        assert not ends or end <= ends[-1] + ROUNDING, f"{block['name']} at {block['ts']} overlaps with the block before it"
        ends.append(end)


def order(events):
    """Processes in the order of their ranks, which their names begin with; and every track has a place."""
    places = {e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"}
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert places.keys() == names.keys(), f"processes without a place: {names.keys() ^ places.keys()}"
    for pid, name in names.items():
        assert name.startswith(f"rank {places[pid]} of "), f"{name} has the place {places[pid]}"
    tracks = {kind: [(e["pid"], e["tid"]) for e in events if e["name"] == kind] for kind in ("thread_name", "thread_sort_index")}
    assert tracks["thread_name"] == tracks["thread_sort_index"], f"tracks without a place: {tracks}"


def check(path):
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    events = document["traceEvents"]
    for i, event in enumerate(events):
        try:
            fields(event)
        except AssertionError as error:
            raise AssertionError(f"event {i}: {error}") from error
    order([event for event in events if event["ph"] == "M"])
    pairs([event for event in events if event["ph"] in "be"])
    tracks = {}
    for event in events:
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    named = {(event["pid"], event["tid"]) for event in events if event["ph"] == "M" and event["name"] == "thread_name"}
    assert set(tracks) <= named, f"tracks without a name: {set(tracks) - named}"
    for blocks in tracks.values():
        nesting(blocks)
    return len(events)


for name in sys.argv[1:]:
    try:
        assert check(name) > 0, "no event"
    except (AssertionError, KeyError, ValueError) as error:
        sys.exit(f"{name}: {error}")
