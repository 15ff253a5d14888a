"""What is to be reached: ratios to the best peer, by size class and number of ranks, and what was.

Judged is the worst size of a class; a class counts as far as it was measured.
"""
from harness import bounds
from harness.figures import percent, significant, us
from harness.sizes import text_of
from harness.spread import geometric_mean, median, middle_half, ratios

FLOOR = 0.85
KIB, MIB = 1 << 10, 1 << 20
ORDINARY, ZERO_COPY = "Tutti", "Tutti, zero copy"
PEERS, STOCK, GLOO, NOT_GLOO, LIMIT = "best peer", "Open MPI", "Gloo", "best but Gloo", "2-in-2-out limit"
F32 = "f32"
OTHERS = ("all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "barrier")
OTHERS_TARGET = 1.5
BF16_TARGET = 0.8
LITTLE = 10        # a limit so many times below the time asked for does not explain much

# over, name, our contender, first and last size, {ranks: [(target, against)]}
ROWS = (
    ("shm", "shared memory, 8-56 B", ORDINARY, 8, 56,
     {2: [(2.0, PEERS)], 4: [(2.3, PEERS)], 8: [(2.2, PEERS)]}),
    ("shm", "shared memory, 64 B - 1 KiB", ORDINARY, 64, KIB,
     {2: [(1.8, PEERS)], 4: [(2.4, PEERS)], 8: [(2.8, PEERS)]}),
    ("shm", "shared memory, 4 - 64 KiB", ORDINARY, 4 * KIB, 64 * KIB,
     {2: [(2.0, PEERS)], 4: [(2.3, PEERS)], 8: [(2.6, PEERS)]}),
    ("shm", "shared memory, 256 KiB - 4 MiB", ORDINARY, 256 * KIB, 4 * MIB,
     {2: [(2.0, PEERS)], 4: [(3.0, PEERS)], 8: [(2.4, PEERS)]}),
    ("shm", "shared memory, 16 - 64 MiB", ORDINARY, 16 * MIB, 64 * MIB,
     {2: [(2.0, PEERS), (5.0, STOCK)], 4: [(2.4, PEERS)], 8: [(2.1, PEERS)]}),
    ("shm", "zero copy, 256 KiB - 4 MiB", ZERO_COPY, 256 * KIB, 4 * MIB,
     {2: [(3.0, PEERS)], 4: [(5.0, PEERS)], 8: [(4.0, PEERS)]}),
    ("shm", "zero copy, 16 - 64 MiB", ZERO_COPY, 16 * MIB, 64 * MIB,
     {2: [(2.4, PEERS), (0.8, LIMIT)], 4: [(4.5, PEERS)], 8: [(4.5, PEERS)]}),
    ("tcp", "TCP, to 16 KiB", ORDINARY, 1, 16 * KIB,
     {2: [(1.6, NOT_GLOO), (15, GLOO)], 4: [(2.2, NOT_GLOO), (20, GLOO)], 8: [(1.9, NOT_GLOO), (15, GLOO)]}),
    ("tcp", "TCP, 64 KiB - 64 MiB", ORDINARY, 64 * KIB, 64 * MIB,
     {2: [(1.8, NOT_GLOO), (3, GLOO)], 4: [(1.7, NOT_GLOO), (2, GLOO)], 8: [(1.6, NOT_GLOO), (2.4, GLOO)]}),
)
FAR_TARGET = ("shared memory, 64 B - 1 KiB", 2, 1.3)    # where the cores are far from each other


def distance_of_cores(points, limits):
    """[which target follows from it and why, as a message], or nothing where that target was not measured."""
    name, ranks, far_target = FAR_TARGET
    over, ours, first, last, near_target = next((over, ours, first, last, cells[ranks][0][0])
                                                for over, row, ours, first, last, cells in ROWS if row == name)
    if not any(p.times.get(ours) for p in within(points, over, ranks, "all_reduce", first, last)):
        return []
    what = f"{name}, {ranks} ranks"
    believed, refused = bounds.flags_of(limits)
    if not believed:
        doubted = f" ({refused} measurements below {bounds.LEAST_FLAG_NS} ns are not believed)" if refused else ""
        return [f"How far the cores are from each other is not known{doubted}, so they count as near: {what}, has the target "
                f"{near_target:g}x ({far_target:g}x where a flag takes more than {bounds.FAR_NS} ns)."]
    doubted = f"; {refused} below {bounds.LEAST_FLAG_NS} ns {'are' if refused > 1 else 'is'} not believed" if refused else ""
    flag = (f"A flag takes {median(believed):.0f} ns from core to core (the median of {len(believed)} measurements, "
            f"{believed[0]:.0f}-{believed[-1]:.0f}{doubted})")
    if bounds.cores_are_far(limits):
        return [f"{flag}, more than {bounds.FAR_NS}: they are far from each other, so {what}, has the target {far_target:g}x instead "
                f"of {near_target:g}x."]
    return [f"{flag}, not more than {bounds.FAR_NS}: they are near each other, so {what}, has the target {near_target:g}x "
            f"({far_target:g}x where they are far)."]


class Verdict:
    """A target at one place: the worst size's ratio, all sizes' mean, and how it counts. found: [(point, whose times are ours,
    the others' times, whose these are)], one for each size."""

    def __init__(self, what, ranks, target, against, found):
        self.what, self.ranks, self.target, self.against = what, ranks, target, against
        medians = {p.size: median(ratios(theirs, p.times[ours])) for p, ours, theirs, _ in found}
        self.worst_size = min(sorted(medians), key=medians.get, default=None)
        self.worst = medians.get(self.worst_size)
        self.mean = geometric_mean(medians.values()) if found else None
        self.point, self.ours, self.theirs, self.who = next((f for f in found if f[0].size == self.worst_size), [None] * 4)

    @property
    def state(self):
        if self.worst is None:
            return "not measured"
        if self.worst >= self.target:
            return "reached"
        share = f"{percent(self.worst / self.target)}% of it"
        return share if self.worst >= FLOOR * self.target else f"missed: {share}"


def is_peer(name):
    return not name.startswith("Tutti")


def wanted_of(against):
    """Which contenders are meant by that."""
    return {PEERS: is_peer, NOT_GLOO: lambda n: n != "Gloo"}.get(against, lambda n: n == against)


def best_peer(point, wanted=is_peer):
    """The name of the fastest at this size by its median, or None."""
    names = [n for n in point.times if wanted(n) and is_peer(n)]
    return min(names, key=lambda n: median(point.times[n]), default=None)


def opponent(point, ours, against, limits=None):
    """(times that ours are compared with, round by round, and whose they are); None where one of the two is missing."""
    if not point.times.get(ours):
        return None
    if against == LIMIT:
        limit = bounds.lines_at(limits, point.place, point.size).get("2 in 2 out")
        return limit and ([limit] * len(point.times[ours]), "the limit 2 in 2 out")
    peer = best_peer(point, wanted_of(against))
    return peer and (point.times[peer], peer)


def ratio_to(point, ours):
    """(low, median, high) over the rounds, of the best peer's time to ours; None where one of them is missing."""
    found = opponent(point, ours, PEERS)
    return found and middle_half(ratios(found[0], point.times[ours]))


def judge(points, limits, what, ranks, target, ours, against):
    found = [(p, ours, *theirs) for p in points if (theirs := opponent(p, ours, against, limits))]
    return Verdict(what, ranks, target, against, found)


def within(points, over, ranks, collective, first=0, last=1 << 62):
    return [p for p in points if (p.place.over, p.place.ranks, p.place.collective, p.dtype) == (over, ranks, collective, "float")
            and first <= p.size <= last]


def all_reduce_verdicts(points, limits):
    """[[row's name, {ranks: [verdicts]}], ...] of the table."""
    table = []
    for over, name, ours, first, last, cells in ROWS:
        row = {}
        for ranks, wanted in cells.items():
            here = within(points, over, ranks, "all_reduce", first, last)
            row[ranks] = []
            for target, against in wanted:
                if (name, ranks) == FAR_TARGET[:2] and bounds.cores_are_far(limits):
                    target = FAR_TARGET[2]
                row[ranks].append(judge(here, limits, name, ranks, target, ours, against))
        table.append((name, row))
    return table


def other_verdicts(points, limits):
    """The same for the other collectives: every size class together."""
    table = []
    for collective in OTHERS:
        for over in ("shm", "tcp"):
            row = {}
            for ranks in sorted({p.place.ranks for p in points}):
                here = within(points, over, ranks, collective)
                if here:
                    row[ranks] = [judge(here, limits, collective, ranks, OTHERS_TARGET, ORDINARY, PEERS)]
            if row:
                table.append((f"{collective}, {'TCP' if over == 'tcp' else 'shared memory'}", row))
    return table


def bf16_verdicts(points):
    """bf16's speed per byte to f32's, the same rounds: [(row's name, {ranks: [verdict]})]."""
    table = {}
    for p in points:
        if p.dtype != "bfloat16" or p.place.collective != "all_reduce":
            continue
        f32 = next((q for q in points if q.dtype == "float" and q.place is p.place and q.size == p.size), None)
        for ours in (ORDINARY, ZERO_COPY):
            if f32 and f32.times.get(ours) and p.times.get(ours):
                name = f"bf16 to f32, {'TCP' if p.place.over == 'tcp' else 'shared memory'}" + ours[len(ORDINARY):]
                table.setdefault(name, {}).setdefault(p.place.ranks, []).append((p, ours, f32.times[ours], F32))
    return [(name, {ranks: [Verdict(name, ranks, BF16_TARGET, F32, found)] for ranks, found in row.items()})
            for name, row in table.items()]


def shortfalls(verdict_tables, limits):
    """Messages on targets that were not reached: by how much, at which size, and what the machine's limits say to it. What else
    holds a size back is in docs/measurements/. verdict_tables: [[(row's name, {ranks: [verdicts]})], ...]."""
    verdicts = [v for table in verdict_tables for _, row in table for cell in row.values() for v in cell]
    return [shortfall(v, limits) for v in verdicts if v.worst is not None and v.worst < v.target]


def shortfall(verdict, limits):
    at = f" at {text_of(verdict.worst_size)}" if verdict.worst_size else ""
    head = (f"{verdict.what}, {verdict.ranks} ranks: {significant(verdict.worst)} of the {verdict.target:g} asked "
            f"({percent(verdict.worst / verdict.target)} %){at}")
    ours, theirs = median(verdict.point.times[verdict.ours]), median(verdict.theirs)
    needed = theirs / verdict.target
    why = peer_beside(verdict) if verdict.against == LIMIT else limit(verdict, limits, needed)
    return f"{head}: {us(ours)} us against {us(theirs)} of {verdict.who}; {us(needed)} us would reach it{why}."


def peer_beside(verdict):
    peer = best_peer(verdict.point)
    return f"; the best peer, {peer}, takes {us(median(verdict.point.times[peer]))} us" if peer else "; no peer was measured"


def limit(verdict, limits, needed):
    """The highest of the limits that hold for that way, and what it explains."""
    lines = bounds.lines_at(limits, verdict.point.place, verdict.worst_size)
    lines.pop("copy" if verdict.ours == ZERO_COPY else "2 in 2 out", None)
    name = max(lines, key=lines.get, default=None)
    if name and lines[name] > needed:
        return f", which the limit {name}, {us(lines[name])} us, does not allow"
    if name and lines[name] >= needed / LITTLE:
        return f", and the limit {name} is {us(lines[name])} us"
    shared = sharing(verdict.ranks, limits)
    if not name:
        return f"; no limit of the machine was measured for this{shared}"
    return f"; the highest limit that was measured for this, {name}, is {us(lines[name])} us: it does not explain the difference{shared}"


def sharing(ranks, limits):
    cores = (limits or {}).get("cores")
    if not cores or ranks <= cores:
        return ""
    return f"; the {ranks} ranks share {cores} core{'s' if cores > 1 else ''}, and no limit was measured of how often and how fast they change"
