"""perfetto.py FOLDER PICTURE TRACE... -- BROWSER...: whether Perfetto shows all that is in these traces.

FOLDER has Perfetto's page, which is served on this machine with the traces. Each is opened in it, and what Perfetto has made of
it, its tables of slices, threads and processes, is compared with the file; of the last one a picture is taken. Exits with 1 and
says why, of every trace."""
import base64
import collections
import functools
import http.server
import json
import os
import re
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from devtools import Browser, Page

# An accelerator that may run on the user's machine: this test wants the page's own trace processor, and not another's.
ACCELERATOR = "127.0.0.1:9001"
# What the page writes whichever trace it shows: of options that this browser does not know, of what it looks for in the network
# or on this machine, and how its trace processor gets on.
HARMLESS = re.compile(r"""Unrecognized\ Content-Security-Policy\ directive\ 'navigate-to'\.
	| Failed\ to\ load\ resource:\ net::ERR_\w+\ https://storage\.cloud\.google\.com/perfetto-ui-internal/.*
	| Failed\ to\ load\ resource:\ net::ERR_\w+\ https://(www\.)?google[-\w]*\.com/.*
	| Failed\ to\ load\ resource:\ net::ERR_\w+\ http://127\.0\.0\.1:9001/status
	| Failed\ to\ load\ resource:\ the\ server\ responded\ with\ a\ status\ of\ 404\ \(File\ not\ found\)\ \S*/live_reload
	| LiveReload\ SSE\ error\ \S*
	| warning:\ unsupported\ syscall:\ __syscall_mprotect\s*
	| \s*Loading\ trace\ [0-9.]+\ MB\ \([0-9.]+\ MB/s\)\s*""", re.VERBOSE)
SLICES = """select process.name, thread.name, slice.name, slice.ts, slice.dur, extract_arg(slice.arg_set_id, 'args.rank'),
	extract_arg(slice.arg_set_id, 'args.state')
	from slice left join thread_track on thread_track.id = slice.track_id left join thread using (utid)
	left join process_track on process_track.id = slice.track_id
	left join process on process.upid = coalesce(thread.upid, process_track.upid)"""
NAMES = """select process.name, thread.name from thread join process using (upid) where thread.name is not null
	union all select name, null from process where name is not null"""
ROWS = """(async sql => {
	const result = await app.trace.engine.query(sql), columns = result.columns(), rows = [];
	for (const row = result.iter({}); row.valid(); row.next())
		rows.push(columns.map(c => typeof row.get(c) === "bigint" ? Number(row.get(c)) : row.get(c)));
	return rows;
})"""
# A promise of the script's value, once that is neither false nor empty.
UNTIL = "(async () => { let v; while (!(v = %s)) await new Promise(done => setTimeout(done, 20)); return v; })()"

ENOUGH = 500
# The pixels of blocks of the time line, the rest of which is white, grey or as dark as the rows of processes.
COLOURED = """(() => {
	const line = [...document.querySelectorAll("canvas")].sort((a, b) => b.width * b.height - a.width * a.height)[0];
	const rgba = line.getContext("2d").getImageData(0, 0, line.width, line.height).data;
	let coloured = 0;
	for (let i = 0; i < rgba.length; i += 4)
		coloured += Math.max(rgba[i], rgba[i + 1], rgba[i + 2]) - Math.min(rgba[i], rgba[i + 1], rgba[i + 2]) > 64;
	return coloured;
})()"""


def ns(us):
    return round(us * 1000)


def read(path):
    """What is to be seen of a trace: its slices, and the names of its processes and threads."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    ids = {"process_name": lambda e: e["pid"], "thread_name": lambda e: (e["pid"], e["tid"])}
    named = {ids[e["name"]](e): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] in ids}
    names = [(named[key[0]], name) if isinstance(key, tuple) else (name, None) for key, name in named.items()]
    ends = {(e["pid"], json.dumps(e.get("id2", e.get("id")))): e["ts"] for e in events if e["ph"] == "e"}
    slices = []
    for e in events:
        about = e["name"], ns(e.get("ts", 0))
        if e["ph"] == "X":
            slices.append((named[e["pid"]], named[e["pid"], e["tid"]], *about, ns(e["dur"]), e["args"]["rank"], e["args"]["state"]))
        elif e["ph"] == "b":        # a track of the process, not of a thread
            end = ends.get((e["pid"], json.dumps(e.get("id2", e.get("id")))), e["ts"])
            slices.append((named[e["pid"]], None, *about, ns(end) - about[1], e["args"]["rank"], e["args"]["state"]))
    return slices, names


class Server(http.server.SimpleHTTPRequestHandler):
    """The page's folder; /trace/N is the file number N."""

    traces = []

    def translate_path(self, path):
        found = re.fullmatch(r"/trace/(\d+)", path)
        return os.path.abspath(self.traces[int(found[1])]) if found else super().translate_path(path)

    def log_message(self, *_):
        pass


def serve(folder, traces):
    Server.traces = traces
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def differences(what, wanted, shown):
    wanted, shown = collections.Counter(map(tuple, wanted)), collections.Counter(map(tuple, shown))
    lost, added = wanted - shown, shown - wanted
    if lost or added:
        yield (f"of {wanted.total()} {what} Perfetto has not {lost.total()} ({[*lost][:2]}), "
               f"and {added.total()} that are not in the file ({[*added][:2]})")


def complaints(page, path):
    slices, names = read(path)
    page.value(UNTIL % "window.app && app.trace && !app.isLoadingTrace")

    def rows(sql):
        return page.value(f"{ROWS}({json.dumps(sql)})")

    for name, value in rows("select name, value from stats where severity != 'info' and value != 0"):
        yield f"Perfetto counts errors: {name} {value}"
    yield from differences("operations", slices, rows(SLICES))
    yield from differences("names", names, rows(NAMES))
    page.value("app.trace.commands.runCommand('dev.perfetto.ExpandAllGroups'), true")
    processes = [name for name, thread in names if thread is None]
    page.value(UNTIL % f"{json.dumps(processes)}.every(name => document.body.innerText.includes(name))")
    # Perfetto has this for its own tests. It gives up after a minute.
    page.value(UNTIL % "await waitForPerfettoIdle().then(() => true, () => false)")
    coloured = page.value(COLOURED)
    if coloured < ENOUGH:
        yield f"the time line is empty: {coloured} pixels have a colour"
    bad = [m for m in page.browser.messages if m[0] in ("error", "warning", "assert") and not HARMLESS.fullmatch(m[1])]
    page.browser.messages.clear()
    if bad:
        yield f"the console has messages: {bad}"


def main(folder, picture, *words):
    split = words.index("--")
    traces, failed = words[:split], 0
    address = serve(folder, traces)
    browser = Browser(words[split + 1:])
    for i, trace in enumerate(traces):
        page = Page(browser, f"{address}/#!/?url={address}/trace/{i}", [f"*://{ACCELERATOR}/*"])
        for text in complaints(page, trace):
            print(f"{trace}: {text}")
            failed = 1
    with open(picture, "wb") as file:
        file.write(base64.b64decode(page.call("Page.captureScreenshot", format="png")["data"]))
    browser.close()
    return failed


sys.exit(main(*sys.argv[1:]))
