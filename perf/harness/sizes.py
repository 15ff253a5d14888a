"""Message sizes: how they are written, printed, and put into units that run within about a second.

A unit is a list of sizes that one start of a program measures. The machine's cores change their mood within
seconds, so all contenders measure a unit before one measures it again, and before the next one.
"""
UNITS = {"K": 10, "M": 20, "G": 30}
MOST = 1 << 46      # that the programs take
# Sizes up to each of these share a unit; above the last every size has its own.
UNIT_ENDS = (1 << 10, 64 << 10, 4 << 20)


def parse_bytes(text):
    """4096, 4K, 1M; ValueError for anything else."""
    shift = UNITS.get(text[-1:].upper(), 0)
    digits = text[:-1] if shift else text
    if not digits.isdecimal() or not 1 <= int(digits) << shift <= MOST:
        raise ValueError(text)
    return int(digits) << shift


def parse_sizes(text):
    """16,1K,64K or 16-64M*4: from 16 B to 64 MiB, each four times the one before (by itself: twice)."""
    sizes = set()
    for item in text.split(","):
        ends, star, factor = item.partition("*")
        first, dash, last = ends.partition("-")
        size, end = parse_bytes(first), parse_bytes(last if dash else first)
        factor = factor if star else "2"
        if not factor.isdecimal() or int(factor) < 2 or end < size:
            raise ValueError(item)
        while size <= end:
            sizes.add(size)
            size *= int(factor)
    return sorted(sizes)


def text_of(size):
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def progressions(sizes):
    """Cuts the sizes into runs that a program's -b, -e and -f can say: (first, last, factor)."""
    runs = []
    for size in sizes:
        if runs:
            first, last, factor = runs[-1]
            if size % last == 0 and (first == last or size == last * factor):
                runs[-1] = (first, size, size // last)
                continue
        runs.append((size, size, 2))
    return runs


def units_of(sizes):
    """[[sizes of a unit], ...]: of about the same duration, and one start of a program each."""
    units = []
    start = 0
    for end in UNIT_ENDS:
        units.append([s for s in sizes if start < s <= end])
        start = end
    units += [[s] for s in sizes if s > start]
    return [list(run_sizes(*run)) for unit in units for run in progressions(unit)]


def run_sizes(first, last, factor):
    while first <= last:
        yield first
        first *= factor
