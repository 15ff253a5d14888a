#!/usr/bin/env python3
"""gpu_model.py FOLDER: tables of what perf's programs measured on a GPU, with a prediction beside each figure.
gpu_model.py --predict [RANKS...]: what to expect of ranks on one GPU, where nothing was measured.

FOLDER has the -J files of script/gpu-perf, and gpu.json of `limits gpu`. Writes FOLDER/table.md, too. docs/gpu.md
describes the model. It is on paper: bytes over a bandwidth, launches, waits; no figure of it is fitted to Tutti."""
import glob
import json
import math
import os
import sys

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
        "all_reduce": 2 * size * ranks,
        "all_gather": 2 * size * ranks,
        "all_to_all": 2 * size * ranks,
        "broadcast": 2 * size * ranks,
        "reduce_scatter": size * ranks + size,
        "reduce": size * ranks + size,
        "gather": 2 * size,
        "scatter": 2 * size,
        "sendrecv": 4 * size * ranks,
    }[collective]


def on_device(p, collective, ranks, ranks_per_gpu, size, is_graph):
    """Seconds of one call by kernels that wait for each other (collectives/device)."""
    start = p["node"] if is_graph else p["launch"]
    wait = p["wait"] + p["wait_peer"] * ranks
    here = ranks_per_gpu / ranks  # the share of the traffic that is at one GPU
    if size <= packets_most(ranks):
        to_each = size if collective in ("all_reduce", "reduce", "broadcast") else size / ranks
        # Twice the bytes, with their flags, written to every rank and read by it.
        return start + wait + 4 * ranks * to_each * ranks * here / p["copy"]
    return start + 2 * wait + traffic(collective, ranks, size) * here / (p["copy"] * p["lines_share"])


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
    waits = (2 * rounds - 1) * (p["wait"] + p["wait_peer"])
    copies = 2 * 2 * size / lanes / p["block"]
    return p["node"] + max(waits + copies, traffic("sendrecv", ranks, size) * ranks_per_gpu / ranks / (p["copy"] * p["lines_share"]))


def by_stages(p, ranks, ranks_per_gpu, size, is_shared):
    """Seconds of a send and a recv of more than SLOT bytes, eager: the CPU sees the stream's event, and copies of parts into
    a stage and out of it by copy engines, whose ends it sees. Two parts are under way at once. is_shared: processes share the
    GPU, and each copy has their time slices."""
    parts = math.ceil(size / p["stage"])
    hop = ranks_per_gpu * p["slice"] if is_shared else p["turn"]
    each = max(hop + 2 * size / parts / p["copy"], traffic("sendrecv", ranks, size) * ranks_per_gpu / ranks / parts / p["copy"])
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


def kind_of(run):
    """What runs are compared with each other: all but the library."""
    s = run["settings"]
    return (run["program"].replace("nccl_", "").replace("_perf", ""), s["datatype"], run["ranks"], run["ranks_per_gpu"],
            "graph" if s["cudagraph"] else "stream",
            "threads" if s["nthreads"] > 1 or run["ranks"] == 1 else "processes")


def text_of(size):
    for unit, bytes in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= bytes and size % bytes == 0:
            return f"{size // bytes} {unit}"
    return f"{size} B"


def without_engine(p, kind, size):
    """Seconds of a call that the engine does not carry through pinned memory; None: there is no such way."""
    collective, _, ranks, per_gpu, how, ranks_as = kind
    is_shared = ranks_as == "processes" and per_gpu > 1
    if collective == "sendrecv" and how == "graph":
        return None if is_shared else by_messages(p, ranks, per_gpu, size)
    if collective == "sendrecv":
        return by_stages(p, ranks, per_gpu, size, is_shared) if size > SLOT else None
    if is_shared:
        return by_turns(p, collective, ranks, per_gpu, size)
    return on_device(p, collective, ranks, per_gpu, size, how == "graph")


def table(p, kind, runs):
    collective, dtype, ranks, per_gpu, how, ranks_as = kind
    measured = {run["library"].split()[0]: {row["bytes"]: row for row in run["rows"] if not row["in_place"]} for run in runs}
    ours, theirs = measured.get("Tutti", {}), measured.get("NCCL", {})
    lines = [f"### {collective}, {dtype}, {ranks} ranks as {ranks_as}, {per_gpu} a GPU, by {how}", "",
             "| size | us | busbw GB/s | on the device: predicted us | of it | by the engine: predicted us | NCCL us | NCCL / Tutti |",
             "|---|---|---|---|---|---|---|---|"]
    for size in sorted(set(ours) | set(theirs)):
        device = without_engine(p, kind, size)
        device = device and device * 1e6
        engine = by_engine(p, collective, ranks, per_gpu, size) * 1e6
        us, bus = (ours[size]["time_us"], ours[size]["busbw"]) if size in ours else (None, None)
        nccl = theirs[size]["time_us"] if size in theirs else None
        cells = [text_of(size), f"{us:.2f}" if us else "-", f"{bus:.2f}" if us else "-", f"{device:.2f}" if device else "-",
                 f"{device / us:.2f}" if us and device else "-", f"{engine:.1f}", f"{nccl:.2f}" if nccl else "-",
                 f"{nccl / us:.2f}" if us and nccl else "-"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines + [""]


def rows_of(groups, kind, library):
    """{bytes: us} of what a library did, or of nothing."""
    return {row["bytes"]: row["time_us"] for run in groups.get(kind, []) if run["library"].startswith(library)
            for row in run["rows"] if not row["in_place"]}


def compared(groups):
    """Of all that both libraries did, and of processes beside threads."""
    lines = []
    for kind in sorted(groups):
        collective, dtype, ranks, per_gpu, how, ranks_as = kind
        ours, theirs = rows_of(groups, kind, "Tutti"), rows_of(groups, kind, "NCCL")
        both = {size: theirs[size] / ours[size] for size in ours if size in theirs}
        if both:
            least = min(both, key=both.get)
            lines.append(f"| {collective}, {dtype}, {ranks} ranks by {how}: NCCL's time over ours at least 1 | "
                         f"{both[least]:.2f} at {text_of(least)} | {'yes' if both[least] >= 1 else 'no'} |")
        threads = rows_of(groups, (collective, dtype, ranks, per_gpu, how, "threads"), "Tutti")
        if ranks_as == "processes" and 64 << 20 in ours and 64 << 20 in threads:
            part = threads[64 << 20] / ours[64 << 20]
            lines.append(f"| {collective}, {dtype}, 64 MiB, {ranks} processes on a GPU: at least half of the threads' bandwidth | "
                         f"{part:.2f} | {'yes' if part >= 0.5 else 'no'} |")
    return lines


def targets(p, groups):
    """The issue's floors, of what was measured."""
    lines = ["### Floors", "", "| floor | measured | |", "|---|---|---|"] + compared(groups)
    for kind, runs in groups.items():
        collective, dtype, ranks, per_gpu, how, ranks_as = kind
        if collective != "all_reduce" or per_gpu != ranks:
            continue
        for run in runs:
            if not run["library"].startswith("Tutti"):
                continue
            for row in run["rows"]:
                if row["in_place"]:
                    continue
                us, size = row["time_us"], row["bytes"]
                if size >= 64 << 20 and ranks == 8 and ranks_as == "threads":
                    least = traffic(collective, ranks, size) / p["copy"] * 1e6
                    lines.append(f"| {dtype}, {text_of(size)}, 8 ranks by {how}: at least 0.80 of the traffic limit | "
                                 f"{least / us:.2f} | {'yes' if least / us >= 0.8 else 'no'} |")
                most = {2: 6, 8: 9}.get(ranks)
                if how == "graph" and size <= 32 << 10 and most and ranks_as == "threads":
                    lines.append(f"| {dtype}, {text_of(size)}, {ranks} ranks in a graph: at most {most} us | "
                                 f"{us:.2f} us | {'yes' if us <= most else 'no'} |")
    return lines + [""] if len(lines) > 4 else []


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
    lines += targets(p, groups)
    for kind in sorted(groups):
        lines += table(p, kind, groups[kind])
    text = "\n".join(lines)
    with open(os.path.join(folder, "table.md"), "w") as file:
        file.write(text)
    print(text)


def predict(counts):
    p = PARAMETERS
    print("| size | " + " | ".join(f"{n} ranks, graph | stream | turns | staged | engine" for n in counts) + " |")
    print("|---" * (1 + 5 * len(counts)) + "|")
    size = 8
    while size <= 256 << 20:
        cells = [f"{1e6 * t:.1f}" for n in counts for t in (on_device(p, "all_reduce", n, n, size, True),
                                                              on_device(p, "all_reduce", n, n, size, False),
                                                              by_turns(p, "all_reduce", n, n, size),
                                                              by_turns(p, "all_reduce", n, n, size, True),
                                                              by_engine(p, "all_reduce", n, n, size))]
        print(f"| {text_of(size)} | " + " | ".join(cells) + " |")
        size *= 8 if size < 64 << 20 else 4


def main():
    if sys.argv[1:2] == ["--predict"]:
        predict([int(n) for n in sys.argv[2:]] or [2, 4, 8])
    elif len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        report(sys.argv[1])
    else:
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)


main()
