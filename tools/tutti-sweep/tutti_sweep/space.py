"""The space of a sweep: space.json, in the form of NNI's search_space.json.

A trial is a *point* of the space: for each parameter a number between two others, or the index of one of its values. Methods
choose points; the command gets the values at them.
"""
import json
import math
import os
import sys

from tutti_sweep.command import NAME, RESERVED
from tutti_sweep.refused import Refused, closed, nearest

MOST_VALUES = 1000000       # of one parameter whose values are counted
MOST_MULTIPLE = 1 << 53     # of a quniform's q: up to there whole numbers have their own float


class Range:
    """A number from low to high. A method spreads points evenly, or evenly in their logarithms."""

    def __init__(self, low, high, is_log):
        self.low, self.high, self.is_log = low, high, is_log

    def draw(self, random):
        if not self.is_log:
            return random.uniform(self.low, self.high)
        drawn = math.exp(random.uniform(math.log(self.low), math.log(self.high)))
        return min(max(drawn, self.low), self.high)

    def grid(self, points):
        shares = [i / (points - 1) for i in range(points)] if points > 1 else [0.5]
        if self.is_log:
            spread = [self.low * (self.high / self.low) ** share for share in shares]
        else:
            spread = [self.low + (self.high - self.low) * share for share in shares]
        return [min(max(value, self.low), self.high) for value in spread]

    def value_at(self, point):
        """With so many digits as a person wants to read and type again."""
        return min(max(float(f"{point:.6g}"), self.low), self.high)


class Values:
    """One of so many values, by its index. They have an order unless they are choices."""

    def __init__(self, count, value_at, is_ordered):
        self.count, self.value_at, self.is_ordered, self.is_log = count, value_at, is_ordered, False

    def draw(self, random):
        return random.randrange(self.count)

    def grid(self, _points):
        return range(self.count)


def is_number(value):
    """A finite one; a whole number of 400 digits is none either."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def numbers(value, names):
    """The numbers of _value, of which the second is above the first."""
    if not (isinstance(value, list) and len(value) == len(names) and all(map(is_number, value))):
        raise ValueError(f"its _value must be {len(names)} numbers, [{', '.join(names)}], and is {json.dumps(value)}")
    if not value[0] < value[1]:
        raise ValueError(f"its {names[0]} {value[0]} is not below its {names[1]} {value[1]}")
    if not is_number(value[1] - value[0]):
        raise ValueError(f"from its {names[0]} {value[0]} to its {names[1]} {value[1]} is further than a number can say")
    return value


def is_argument(text):
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def choice(value):
    if not isinstance(value, list) or not value:
        raise ValueError(f"its _value must be a list of what there is to choose from, and is {json.dumps(value)}")
    for one in value:
        if isinstance(one, dict):
            raise ValueError("it has a choice with parameters of its own, which tutti-sweep does not have")
        if not isinstance(one, (str, int)) and not is_number(one):
            raise ValueError(f"it has the choice {json.dumps(one)}, which is no text, number, true or false")
        if isinstance(one, str) and not is_argument(one):
            raise ValueError(f"it has the choice {json.dumps(one)}, which no command line can have")
    if len({json.dumps(one) for one in value}) < len(value):
        raise ValueError(f"it has a choice twice: {json.dumps(value)}")
    return Values(len(value), value.__getitem__, False)


def uniform(value):
    return Range(*numbers(value, ("low", "high")), False)


def loguniform(value):
    low, high = numbers(value, ("low", "high"))
    if low <= 0:
        raise ValueError(f"its low {low} is not above 0, and has no logarithm")
    return Range(low, high, True)


def quniform(value):
    """As NNI has it: multiples of q, and the two ends where they are none. Whole numbers give whole numbers."""
    low, high, q = numbers(value, ("low", "high", "q"))
    if q <= 0:
        raise ValueError(f"its q {q} is not above 0")
    if max(abs(low), abs(high)) / q > MOST_MULTIPLE:
        raise ValueError(f"its q {q} is too small beside {low} and {high}")
    first, last = round(low / q), round(high / q)
    of_type = int if all(float(number).is_integer() for number in value) else float

    def value_at(index):
        return of_type(min(max(float(f"{(first + index) * q:.12g}"), low), high))

    return counted(last - first + 1, value_at)


def randint(value):
    """As NNI has it: high is not in it."""
    low, high = numbers(value, ("low", "high"))
    if not float(low).is_integer() or not float(high).is_integer():
        raise ValueError(f"its low and high must be whole numbers, and are {low} and {high}")
    return counted(int(high) - int(low), lambda index: int(low) + index)


def counted(count, value_at):
    if count > MOST_VALUES:
        raise ValueError(f"it has {count} values; {MOST_VALUES} is the most")
    return Values(count, value_at, True)


TYPES = {"choice": choice, "uniform": uniform, "loguniform": loguniform, "quniform": quniform, "randint": randint}
OF_NNI = ("qloguniform", "normal", "qnormal", "lognormal", "qlognormal")


def parameter_of(name, spec):
    if not NAME.fullmatch(name) or name in RESERVED:
        raise ValueError("a parameter's name has letters, digits and _ . - / alone, begins with a letter, and is none of "
                         f"{', '.join(RESERVED)}")
    if not isinstance(spec, dict) or set(spec) != {"_type", "_value"}:
        raise ValueError(f'it must be {{"_type": ..., "_value": [...]}}, and is {json.dumps(spec)}')
    kind = spec["_type"]
    if kind in OF_NNI:
        raise ValueError(f"its _type {kind} is one of NNI's that tutti-sweep does not have; there are {', '.join(TYPES)}")
    if not isinstance(kind, str) or kind not in TYPES:
        raise ValueError(f"its _type is {json.dumps(kind)}; there are {', '.join(TYPES)}{nearest(str(kind), TYPES)}")
    return TYPES[kind](spec["_value"])


def once_each(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f'"{next(name for name in names if names.count(name) > 1)}" is there twice')
    return found


def read(path):
    """(what the file says, {name: Range or Values})."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            raw = json.load(file, object_pairs_hook=once_each)
    except OSError as error:
        raise Refused(f"{path} could not be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path} is no JSON of a space: {error}.") from error
    if not isinstance(raw, dict) or not raw:
        raise Refused(f'{path} has no parameters: it must be {{"lr": {{"_type": "loguniform", "_value": [0.0001, 0.1]}}, ...}}.')
    found = {}
    for name, spec in raw.items():
        try:
            found[name] = parameter_of(name, spec)
        except ValueError as error:
            raise Refused(closed(f'{path}: "{name}": {error}')) from error
    return raw, found


def values_at(space, point):
    """{name: value} of a trial."""
    return {name: parameter.value_at(point[name]) for name, parameter in space.items()}
