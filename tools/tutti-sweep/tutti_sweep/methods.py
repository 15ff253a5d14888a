"""Which points trials try, where nothing is learned from trials before: a grid, or points at random."""
import math
import random

from tutti_sweep.refused import Refused
from tutti_sweep.space import Range

MOST_TRIALS = 100000


def random_of(seed, number):
    """Of one trial. So its point does not depend on which trials ran before, or on a restart."""
    return random.Random(f"{seed}/{number}")


class Grid:
    """All combinations; the last parameter changes with each trial."""

    def __init__(self, space, points):
        endless = [name for name, parameter in space.items() if isinstance(parameter, Range)]
        if endless and not points:
            raise Refused(f"a grid needs a number of points of {' and '.join(endless)}: --points N, or a choice or quniform in the "
                          "space.")
        self.axes = {name: parameter.grid(points) for name, parameter in space.items()}
        self.count = math.prod(map(len, self.axes.values()))

    def point(self, number):
        point = {}
        for name, axis in reversed(self.axes.items()):
            number, at = divmod(number, len(axis))
            point[name] = axis[at]
        return dict(reversed(point.items()))


class Random:
    def __init__(self, space, seed):
        self.space, self.seed, self.count = space, seed, MOST_TRIALS

    def point(self, number):
        drawn = random_of(self.seed, number)
        return {name: parameter.draw(drawn) for name, parameter in self.space.items()}


class Alone:
    """A method without Optuna: trials' results change nothing, and no trial is stopped. study.Study has the same calls.

    lag: point n is chosen by the results of the trials up to n - lag, in this order; None: by those that there are."""

    def __init__(self, source):
        self.source, self.count, self.lag = source, source.count, None

    def ask(self, number, point=None):
        return point or self.source.point(number)

    def report(self, number, step, value):
        """True: the trial is to be stopped."""
        return False

    def tell(self, trial):
        pass
