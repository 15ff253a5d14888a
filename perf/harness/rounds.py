"""The order of measuring: every round measures every contender once, one after the other, so that all see the
same machine. The first round verifies, warms up, and finds out how many iterations the others need."""
import dataclasses

from harness import run
from harness.sizes import text_of, units_of as units_of_sizes

BUDGET_S = 0.12         # of one start of a program, apart from starting
# Iterations by the unit's last size: those of the first round, the fewest, the most.
ITERATIONS = ((1 << 10, 20, 50, 20000), (64 << 10, 8, 20, 5000), (4 << 20, 3, 5, 500), (1 << 60, 1, 2, 20))


# Whose size is that of all ranks' parts together.
PARTED = ("all_gather", "reduce_scatter", "gather", "scatter", "all_to_all")
ELEMENT_BYTES = {"float": 4, "double": 8, "half": 2, "bfloat16": 2, "int8": 1, "int32": 4, "int64": 8}


class Place:
    """Where a comparison is made: the transport, the ranks, and the call."""

    def __init__(self, over, ranks, collective):
        self.over, self.ranks, self.collective = over, ranks, collective

    def __str__(self):
        return f"{self.collective}, {self.ranks} ranks, {'TCP' if self.over == 'tcp' else 'shared memory'}"


def least_size(place, dtypes):
    """An element of each type for every rank; of a barrier none."""
    if place.collective == "barrier":
        return 0
    return max(ELEMENT_BYTES[d] for d in dtypes) * (place.ranks if place.collective in PARTED else 1)


def units_of(place, sizes, dtypes):
    """(units of sizes, types, a message or None): what to measure there. Of nothing nobody measures the time: a
    size without an element for every rank is left out; one that ends within an element counts without that. A barrier has
    no size: one measurement of 8 bytes."""
    if place.collective == "barrier":
        return [[8]], dtypes[:1], None
    least = least_size(place, dtypes)
    small = [s for s in sizes if s < least]
    message = small and (f"{', '.join(map(text_of, small))} {'are' if small[1:] else 'is'} left out of {place}: one element "
                          f"for each rank takes {least} B.")
    element = max(ELEMENT_BYTES[d] for d in dtypes)
    whole = sorted({s - s % element for s in sizes if s >= least})
    return units_of_sizes(whole), dtypes, message or None


class Point:
    """One size in one place: each contender's microseconds, round by round."""

    def __init__(self, place, dtype, size, names=()):
        self.place, self.dtype, self.size = place, dtype, size
        self.times = {name: [] for name in names}

    def keep_whole_rounds(self):
        """After an interruption some have been measured once more than others."""
        least = min((len(t) for t in self.times.values()), default=0)
        self.times = {name: t[:least] for name, t in self.times.items()} if least else {}


class Hangs:
    """Contenders that did not end in time, and where: there it is not started again, and after two places nowhere."""
    MOST = 2

    def __init__(self):
        self.places = {}          # {contender: [places]}

    def add(self, name, place):
        """What follows from it, as a message, or None."""
        places = self.places.setdefault(name, [])
        places.append(str(place))
        if len(places) < self.MOST:
            return None
        return f"{name} is left out of all that follows: it did not end in time in {' and in '.join(places)}."

    def holds(self, name, place):
        places = self.places.get(name, ())
        return str(place) in places or len(places) >= self.MOST


@dataclasses.dataclass
class Settings:
    env: dict
    rounds: int = 8
    iterations: int = 0                  # 0: as many as fit into the budget
    dirty: bool = True
    in_place: bool = True
    load: int = 0
    timeout: float = 120
    wrap: list = ()
    note: object = print                 # for what a report must say too
    hangs: Hangs = dataclasses.field(default_factory=Hangs)


class Rounds:
    """Measures units in one place. broken: {(contender, type): why it was left out}; it holds for the whole place. A
    hang is one of all types: (contender, None). refused: those of them that cannot be had."""

    def __init__(self, settings, place, contenders):
        self.settings, self.place = settings, place
        self.contenders = contenders
        self.broken, self.refused = {}, set()
        self.libraries = {}

    def measure_unit(self, sizes, dtypes, into):
        """Appends a point for each type and size to into, at once, so that an interruption leaves what there is."""
        points = {(d, s): Point(self.place, d, s, [c.name for c in self.contenders if not self.is_out(c.name, d)])
                  for d in dtypes for s in sizes}
        into += points.values()
        iterations = {}
        for turn in range(self.settings.rounds + 1):
            for dtype in dtypes:
                known = set(self.refused)
                for contender in self.in_turn(turn):
                    self.measure_once(contender, dtype, sizes, turn, iterations, points)
                for message in self.messages(self.refused - known):
                    print(message)

    def is_out(self, name, dtype):
        return (name, dtype) in self.broken or self.settings.hangs.holds(name, self.place)

    def in_turn(self, turn):
        """A different one goes first in every round, so that none always runs after the same other one."""
        n = turn % len(self.contenders)
        return self.contenders[n:] + self.contenders[:n]

    def measure_once(self, contender, dtype, sizes, turn, iterations, points):
        key = (contender.name, dtype)
        if self.is_out(*key):
            return
        first = turn == 0
        options = ["-d", dtype, "-c", str(int(first)), "--dirty", str(int(self.settings.dirty)), "-w", "2",
                   "-n", str(bounds_of(sizes)[0] if first else iterations[key])]
        if self.settings.load:
            options += ["--load", str(self.settings.load)]
        env = contender.environment(self.settings.env)
        command = contender.command(self.place.collective, self.place.ranks, self.settings.wrap)
        try:
            result, rows = run.run_unit(command, env, sizes, options, self.settings.timeout)
            times = run.times_of(rows, sizes, self.settings.in_place)
        except run.WrongResult as wrong:
            raise run.WrongResult(f"{contender.name} {wrong} in {self.place}, {dtype}, {sizes[0]} to {sizes[-1]} B.",
                                  "\n".join(wrong.lines)) from wrong
        except run.Hang as hang:
            self.leave_out((contender.name, None), hang, points)
            return
        except run.Failure as failure:
            self.leave_out(key, failure, points)
            return
        self.libraries.setdefault(contender.library, str(result.get("library", "")))
        if first:
            iterations[key] = self.settings.iterations or iterations_for(sizes, times)
            return
        for size, microseconds in times.items():
            points[dtype, size].times[contender.name].append(microseconds)

    def where(self, dtype):
        return f"{self.place}, {dtype}" if dtype else str(self.place)

    def messages(self, keys):
        """The contenders that were left out and why, in one message for all of the same reason."""
        alike = {}
        for name, dtype in self.broken:
            if (name, dtype) in keys:
                alike.setdefault((dtype, self.broken[name, dtype]), []).append(name)
        return [f"{'; '.join(names)} {'are' if names[1:] else 'is'} left out of {self.where(dtype)}, since {why}."
                for (dtype, why), names in alike.items()]

    def leave_out(self, key, failure, points):
        """Half measured is not measured: what it has of this unit goes too."""
        name, dtype = key
        self.broken[key] = str(failure)
        if isinstance(failure, run.Refusal):
            self.refused.add(key)
        else:
            print("\n    ".join([f"{name} is left out of {self.where(dtype)}, from here on: {failure}. Its last lines:"]
                                            + failure.lines))
        for point in points.values():
            if dtype in (None, point.dtype):
                point.times.pop(name, None)
        message = None if dtype else self.settings.hangs.add(name, self.place)
        if message:
            self.settings.note(message)


def bounds_of(sizes):
    return next(bounds[1:] for bounds in ITERATIONS if sizes[-1] <= bounds[0])


def iterations_for(sizes, times):
    """As many as fit into the budget: a call, twice since it is measured out of place too, and writing its
    buffers, at about two bytes a nanosecond."""
    _, least, most = bounds_of(sizes)
    seconds = sum(2 * (times[size] * 1e-6 + 2 * size / 2e9) for size in sizes)
    return max(least, min(most, int(BUDGET_S / seconds)))
