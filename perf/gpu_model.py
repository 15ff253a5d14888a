#!/usr/bin/env python3
"""gpu_model.py FOLDER: tables of what perf's programs measured on a GPU, with a prediction beside each figure.
gpu_model.py --predict [RANKS...]: what to expect of ranks on one GPU, where nothing was measured.
gpu_model.py --predict-apart [RANKS...]: of ranks with a GPU each, linked by NVLink, and of two nodes of them.

FOLDER has the -J files of script/gpu-perf, and gpu.json of `limits gpu`. Writes FOLDER/table.md, too. docs/gpu.md
describes the model. It is on paper: bytes over a bandwidth, launches, waits; no figure of it is fitted to Tutti."""
import collections
import glob
import json
import math
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness.sizes import text_of  # noqa: E402

# Of an H200, measured or from docs/gpu.md; gpu.json replaces the first four.
PARAMETERS = {
    "copy": 4240e9,       # bytes/s, read and written, of the GPU's memory
    "to_host": 55e9,      # bytes/s
    "from_host": 55e9,
    "turn": 8.1e-6,       # s: the least work, and the CPU's wait for it
    "launch": 3.0e-6,     # s: a kernel on a stream
    "node": 0.7e-6,       # s: a kernel of a graph
    "wait": 0.66e-6,      # s: all ranks' flags once, and ...
    "wait_peer": 0.27e-6, # s: ... for each rank
    "lines_share": 0.9,   # of the copy's bandwidth, that a kernel reaches which reads from all and writes to all
    "hand_over": 14.5e-6, # s: by turns, from one call to the next, where one process has a kernel and another has flags
    "slice": 142e-6,      # s: of a process that has a kernel, or a copy, beside another one
    "staging": 128 << 20, # bytes: by turns, what a rank sends and gets in one turn (16 TUTTI_WINDOW_BYTES)
    "host": 20e9,         # bytes/s: the window's reductions and copies of all ranks together, on CPUs
    "block": 49e9,        # bytes/s, read and written, by one block of a kernel: 32 blocks had 1.58 TB/s
    "stage": 2 << 20,     # bytes: a part of a long message (TUTTI_WINDOW_BYTES / 4)
    # Of machines that were not at hand, by their data sheets:
    "link": 450e9,        # bytes/s each way at a GPU: NVLink of an H100 or H200
    "adapter": 50e9,      # bytes/s each way of a GPU's adapter: 400 Gb/s
    "message": 3e-6,      # s: from node to node, and this rank's progress
}
SLOT, SLOTS, LANES = 16 << 10, 4, 8  # of the mailbox of messages in graphs (cuda/kernels/message_box.h); a slot, too, is eager
def packets_most(ranks):
    """Bytes of a rank's block up to which calls go by packets (cuda/kernels/channel.h), with a GPU's blocks enough."""
    return min(max((512 << 10) // ranks, 32 << 10), 256 << 10)


FIGURES = {"copy": ("gpu_copy_gbs", 1e9), "to_host": ("gpu_to_host_gbs", 1e9), "from_host": ("gpu_from_host_gbs", 1e9),
           "turn": ("gpu_turn_us", 1e-6)}


def traffic(collective, ranks, size):
    """Bytes read and written in GPU memory by a call, of all ranks together. size is nccl-tests': see perf/README.md."""
    return {
        "reduce_scatter": size * ranks + size,
        "reduce": size * ranks + size,
        "gather": 2 * size,
        "scatter": 2 * size,
        "sendrecv": 4 * size * ranks,
    }.get(collective, 2 * size * ranks)


def at_links(collective, ranks, size, by_switch=False):
    """Bytes of a call by lines, each way at the links of the GPU that has the most, where each rank has its own."""
    if by_switch:
        return size * (ranks + 1) / ranks
    times = {"all_reduce": 2, "reduce": 2, "broadcast": ranks, "sendrecv": ranks / (ranks - 1)}
    return size * (ranks - 1) / ranks * times.get(collective, 1)


def moved(p, collective, ranks, ranks_per_gpu, size, by_switch=False):
    """Seconds in which kernels of lines move a call's bytes: through memory, or over links."""
    here = ranks_per_gpu / ranks  # the share of the traffic that is at one GPU
    memory = traffic(collective, ranks, size) * here / p["copy"]
    links = ranks_per_gpu * at_links(collective, ranks, size, by_switch) / p["link"] if ranks_per_gpu < ranks else 0
    return max(memory, links) / p["lines_share"]


def wait_of(p, ranks):
    return p["wait"] + p["wait_peer"] * ranks


def on_device(p, collective, ranks, ranks_per_gpu, size, is_graph, by_switch=False):
    """Seconds of one call by kernels that wait for each other (collectives/device)."""
    start = p["node"] if is_graph else p["launch"]
    if size <= packets_most(ranks):
        to_each = size if collective in ("all_reduce", "reduce", "broadcast") else size / ranks
        # Twice the bytes, with their flags, written to every rank and read by it.
        links = 2 * (ranks - 1) * to_each * ranks_per_gpu / p["link"] if ranks_per_gpu < ranks else 0
        return start + wait_of(p, ranks) + max(4 * ranks * to_each * ranks_per_gpu / p["copy"], links)
    return start + 2 * wait_of(p, ranks) + moved(p, collective, ranks, ranks_per_gpu, size, by_switch)


def across(p, collective, ranks, nodes, ranks_per_gpu, size):
    """Seconds of one call of several nodes (collectives/device/across.c): kernels of a node's ranks add, n / P of each
    crosses by the plan of two levels, kernels gather. The CPU starts each phase when it sees the end of the one before. A GPU
    has an adapter. None: the engine carries it."""
    here = ranks // nodes
    kernels = 1 if collective == "all_reduce" else nodes  # of a phase, where ranks are numbered node by node
    phases = {"all_reduce": ("reduce_scatter", "all_gather"), "reduce_scatter": ("reduce_scatter",), "all_gather": ("all_gather",)}
    if collective not in phases or size / kernels < 64 << 10:
        return None
    kernel = p["turn"] + (kernels - 1) * p["launch"] + kernels * 2 * wait_of(p, here)
    inside = sum(kernel + moved(p, phase, here, min(ranks_per_gpu, here), size) for phase in phases[collective])
    crosses = len(phases[collective])  # times a share of each rank, to every other node
    return p["turn"] + inside + crosses * (math.ceil(math.log2(nodes)) * p["message"] +
                                           ranks_per_gpu * (nodes - 1) / nodes * size / here / p["adapter"])


def by_turns(p, collective, ranks, ranks_per_gpu, size, is_staged=False):
    """Seconds of one call of processes that share a GPU: the leader moves all, in each turn. With is_staged the others
    have kernels, too, which copy what they send, and what they get."""
    send, recv, pieces = {  # bytes of a rank; staging that a call needs, in bytes
        "all_reduce": (size, size, 2 * size),
        "all_gather": (size / ranks, size, size / ranks * (ranks + 1)),
        "all_to_all": (size, size, 2 * size),
        "broadcast": (size / ranks, size, size * (ranks + 1)),
        "reduce_scatter": (size, size / ranks, size / ranks * (ranks + 1)),
        "reduce": (size, size / ranks, 2 * size),
        "gather": (size / ranks, size / ranks, size / ranks * (ranks + 1)),
        "scatter": (size / ranks, size / ranks, size / ranks * 2 * ranks),
    }[collective]
    turns = max(1, math.ceil(pieces / p["staging"]))
    moved = traffic(collective, ranks, size) * ranks_per_gpu / ranks
    each = p["hand_over"]
    if is_staged:
        each = ranks_per_gpu * p["slice"]
        moved += 2 * (send + recv) * (ranks_per_gpu - 1)
    return turns * each + moved / (p["copy"] * p["lines_share"])


def by_messages(p, ranks, ranks_per_gpu, size):
    """Seconds of a send and a recv in a graph, one kernel. In each round a block copies what a lane's slots hold into the
    mailbox, and when the receiver sees that, one of its blocks copies it out; then the sender sees that there is room."""
    lanes = min(max(1, math.ceil(size / SLOT)), LANES)
    rounds = max(1, math.ceil(size / (lanes * SLOTS * SLOT)))
    waits = (2 * rounds - 1) * wait_of(p, 1)
    copies = 2 * 2 * size / lanes / p["block"]
    return p["node"] + max(waits + copies, moved(p, "sendrecv", ranks, ranks_per_gpu, size))


def by_stages(p, ranks, ranks_per_gpu, size, is_shared):
    """Seconds of a send and a recv of more than SLOT bytes, eager: the CPU sees the stream's event, and copies of parts into
    a stage and out of it by copy engines, whose ends it sees. Two parts are under way at once. is_shared: processes share the
    GPU, and each copy has their time slices."""
    parts = math.ceil(size / p["stage"])
    hop = ranks_per_gpu * p["slice"] if is_shared else p["turn"]
    part = size / parts
    each = max(hop + 2 * part / p["copy"], moved(p, "sendrecv", ranks, ranks_per_gpu, part) * p["lines_share"])
    return hop + (parts + 1) * each


def by_engine(p, collective, ranks, ranks_per_gpu, size):
    """Seconds of one call that the engine moves through pinned memory of the host: the CPU waits for the stream, then
    for the copies to the host; the window; copies back."""
    send = size / ranks if collective in ("all_gather", "gather") else size
    recv = size / ranks if collective in ("reduce_scatter", "scatter") else size
    copies = ranks_per_gpu * (send / p["to_host"] + recv / p["from_host"])
    return 3 * p["turn"] + copies + 2 * ranks * size / p["host"]


def parameters_of(folder):
    p = dict(PARAMETERS)
    try:
        with open(os.path.join(folder, "gpu.json")) as file:
            found = json.load(file)
    except (OSError, ValueError):
        return p, "docs/gpu.md (an H200)"
    for name, (figure, unit) in FIGURES.items():
        if found.get(figure):
            p[name] = found[figure] * unit
    return p, "limits gpu"


def runs_of(folder):
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        try:
            with open(path) as file:
                run = json.load(file)
        except ValueError:
            continue
        if "rows" in run and run.get("memory") == "cuda":
            yield run


# What runs are compared with each other: all but the library.
Kind = collections.namedtuple("Kind", "collective dtype ranks per_gpu how ranks_as is_zero_copy nodes")


def kind_of(run):
    s = run["settings"]
    return Kind(run["program"].replace("nccl_", "").replace("_perf", ""), s["datatype"], run["ranks"], run["ranks_per_gpu"],
                "graph" if s["cudagraph"] else "stream",
                "threads" if s["nthreads"] > 1 or run["ranks"] == 1 else "processes", s["zero_copy"] != 0, run.get("nodes", 1))


def without_engine(p, kind, size):
    """Seconds of a call that the engine does not carry through pinned memory; None: there is no such way."""
    collective, _, ranks, per_gpu, how, ranks_as, _, nodes = kind
    is_shared = ranks_as == "processes" and per_gpu > 1
    if nodes > 1:
        return None if how == "graph" or is_shared else across(p, collective, ranks, nodes, per_gpu, size)
    if collective == "sendrecv" and how == "graph":
        return None if is_shared else by_messages(p, ranks, per_gpu, size)
    if collective == "sendrecv":
        return by_stages(p, ranks, per_gpu, size, is_shared) if size > SLOT else None
    if is_shared:
        return by_turns(p, collective, ranks, per_gpu, size)
    return on_device(p, collective, ranks, per_gpu, size, how == "graph", is_by_switch(kind))


def is_by_switch(kind):
    """Whether it goes by multicast where GPUs have that."""
    return (kind.collective == "all_reduce" and kind.is_zero_copy and kind.per_gpu == 1 and kind.ranks >= 3 and kind.nodes == 1 and
            kind.dtype in ("float", "half", "bfloat16"))


def title_of(kind):
    return (f"{kind.collective}, {kind.dtype}, {kind.ranks} ranks" + (f" on {kind.nodes} nodes" if kind.nodes > 1 else "") +
            f" as {kind.ranks_as}, {kind.per_gpu} a GPU, by {kind.how}" + (", zero copy" if kind.is_zero_copy else "") +
            ("; predicted by the switch, where GPUs have multicast" if is_by_switch(kind) else ""))


def table(p, kind, groups):
    collective, _, ranks, per_gpu = kind[:4]
    ours, theirs = rows_of(groups, kind, "Tutti"), rows_of(groups, without_zero_copy(kind), "NCCL")
    lines = [f"### {title_of(kind)}", "",
             "| size | us | busbw GB/s | on the device: predicted us | of it | by the engine: predicted us | NCCL us | NCCL / Tutti |",
             "|---|---|---|---|---|---|---|---|"]
    for size in sorted(set(ours) | set(theirs)):
        device = without_engine(p, kind, size)
        device = device and device * 1e6
        engine = by_engine(p, collective, ranks, per_gpu, size) * 1e6 if kind.nodes == 1 else None
        us, bus = ours.get(size, (None, None))
        nccl, _ = theirs.get(size, (None, None))
        cells = [text_of(size), f"{us:.2f}" if us else "-", f"{bus:.2f}" if us else "-", f"{device:.2f}" if device else "-",
                 f"{device / us:.2f}" if us and device else "-", f"{engine:.1f}" if engine else "-", f"{nccl:.2f}" if nccl else "-",
                 f"{nccl / us:.2f}" if us and nccl else "-"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines + [""]


def rows_of(groups, kind, library):
    """{bytes: (us, busbw)} of what a library did, or of nothing."""
    return {row["bytes"]: (row["time_us"], row["busbw"]) for run in groups.get(kind, []) if run["library"].startswith(library)
            for row in run["rows"] if not row["in_place"]}


def without_zero_copy(kind):
    """As NCCL is measured, which has no such memory."""
    return kind._replace(is_zero_copy=False)


def report(folder):
    p, source = parameters_of(folder)
    groups = {}
    for run in runs_of(folder):
        groups.setdefault(kind_of(run), []).append(run)
    if not groups:
        sys.exit(f"gpu_model.py: there is no measurement of a GPU in {folder}")
    first = next(iter(groups.values()))[0]
    libraries = sorted({run["library"] for runs in groups.values() for run in runs})
    lines = [f"# {first['gpu']}: {', '.join(libraries)}", "",
             f"Parameters of the predictions: {source}: copy {p['copy'] / 1e9:.0f} GB/s read and written, to the host "
             f"{p['to_host'] / 1e9:.1f} GB/s, a turn {p['turn'] * 1e6:.1f} us.", ""]
    for kind in sorted(groups):
        lines += table(p, kind, groups)
    text = "\n".join(lines)
    with open(os.path.join(folder, "table.md"), "w") as file:
        file.write(text)
    print(text)


def predict(columns, counts, sizes, seconds):
    """seconds(ranks, size): a figure for each column."""
    print("| size | " + " | ".join(columns.format(n=n) for n in counts) + " |")
    print("|---" * (1 + len(counts) * (columns.count(" | ") + 1)) + "|")
    for size in sizes:
        cells = [f"{1e6 * t:.1f}" for n in counts for t in seconds(n, size)]
        print(f"| {text_of(size)} | " + " | ".join(cells) + " |")


def predict_together(counts):
    p, call = PARAMETERS, "all_reduce"
    predict("{n} ranks, graph | stream | turns | staged | engine", counts, [8 ** k for k in range(1, 10)], lambda n, size: (
        on_device(p, call, n, n, size, True), on_device(p, call, n, n, size, False), by_turns(p, call, n, n, size),
        by_turns(p, call, n, n, size, True), by_engine(p, call, n, n, size)))


def predict_apart(counts):
    p, call = PARAMETERS, "all_reduce"
    predict("{n} ranks, stream | by the switch | a message in stages | 2 nodes of {n}", counts,
            (64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20), lambda n, size: (
                on_device(p, call, n, 1, size, False), on_device(p, call, n, 1, size, False, True),
                by_stages(p, n, 1, size, False), across(p, call, 2 * n, 2, 1, size)))


def main():
    if sys.argv[1:2] == ["--predict"]:
        predict_together([int(n) for n in sys.argv[2:]] or [2, 4, 8])
    elif sys.argv[1:2] == ["--predict-apart"]:
        predict_apart([int(n) for n in sys.argv[2:]] or [4, 8])
    elif len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        report(sys.argv[1])
    else:
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)


main()
