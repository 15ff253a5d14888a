"""chrome_trace.py FILE...: whether viewers of the Trace Event Format (Perfetto, chrome://tracing) show all of these files.

Of each event the fields that the format asks for, and what those viewers drop without a word: an asynchronous operation
without its other end, and blocks of one track that overlap without one being inside of the other. Exits with 1 and says why."""
import json
import numbers
import sys

NEEDED = {"X": {"name", "ph", "ts", "dur", "pid", "tid"}, "b": {"name", "cat", "id", "ph", "ts", "pid", "tid"},
          "e": {"name", "cat", "id", "ph", "ts", "pid", "tid"}, "M": {"name", "ph", "pid", "args"}}
METADATA = {"process_name", "thread_name", "process_labels", "process_sort_index", "thread_sort_index"}
ROUNDING = 0.002        # microseconds: begin and length are rounded to a nanosecond, each by itself


def fields(event):
    assert event.get("ph") in NEEDED, f"the phase {event.get('ph')!r}"
    assert NEEDED[event["ph"]] <= set(event), f"without {sorted(NEEDED[event['ph']] - set(event))}"
    assert all(isinstance(event[key], str) for key in ("name", "cat", "id") if key in event), "a name, category or id that is no text"
    assert all(type(event[key]) is int for key in ("pid", "tid") if key in event), "a process or thread that is no number"
    for key in ("ts", "dur"):
        assert key not in event or (isinstance(event[key], numbers.Real) and event[key] >= 0), f"{key} {event.get(key)!r}"
    if event["ph"] == "M":
        assert event["name"] in METADATA and isinstance(event["args"].get("name"), str), "metadata that names nothing"


def pairs(events):
    begun = {}
    for event in events:
        key = event["pid"], event["cat"], event["id"]
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


def check(path):
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    events = document["traceEvents"]
    for i, event in enumerate(events):
        try:
            fields(event)
        except AssertionError as error:
            raise AssertionError(f"event {i}: {error}") from error
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
