"""Which points trials try, and which trials stop early. Without Optuna a grid, or points at random; with it TPE, and Hyperband or
successive halving (ASHA)."""
import hashlib
import math
import random
import sys
import warnings

from tutti_sweep import journal
from tutti_sweep.refused import Refused, Usage
from tutti_sweep.space import Range

MOST_TRIALS = 100000
STARTUP = 10       # Optuna's: so many trials are at random before TPE has enough to go by


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
    """A method without Optuna: trials' results change nothing, and no trial is stopped. Study has the same calls.

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


def load(option):
    try:
        import optuna
    except ImportError as error:
        raise Usage(f"{option} needs Optuna, which {sys.executable} does not find ({error}): apt-get install python3-optuna, or pip "
                    "install optuna. Without it there are --method grid and random, and no --early-stop") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", module="optuna")
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna


def seed_of(seed, number):
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:4], "big")


def pruner_of(optuna, given):
    if given.early_stop == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=given.min_steps, max_resource=given.max_steps or "auto",
                                              reduction_factor=given.reduction)
    if given.early_stop == "asha":
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=given.min_steps, reduction_factor=given.reduction)
    return optuna.pruners.NopPruner()


def distribution_of(optuna, parameter):
    kinds = optuna.distributions
    if isinstance(parameter, Range):
        return kinds.FloatDistribution(parameter.low, parameter.high, log=parameter.is_log)
    if parameter.is_ordered:
        return kinds.IntDistribution(0, parameter.count - 1)
    return kinds.CategoricalDistribution(tuple(range(parameter.count)))


class Study:
    """source: where points come from; None: TPE. Trials have the same numbers in Optuna and here, so ask() goes by them."""

    def __init__(self, given, seed, space, source):
        self.optuna = load("--method tpe" if source is None else f"--early-stop {given.early_stop}")
        self.source, self.seed, self.count = source, seed, source.count if source else MOST_TRIALS
        self.kinds = {name: distribution_of(self.optuna, parameter) for name, parameter in space.items()}
        # Hyperband puts a trial into a bracket by this name and the trial's number.
        self.study = self.optuna.create_study(study_name="tutti-sweep", pruner=pruner_of(self.optuna, given),
                                              sampler=self.optuna.samplers.RandomSampler(seed=0),
                                              direction="minimize" if given.mode == "min" else "maximize")
        self.liar, self.max_steps = given.parallel > 1, given.max_steps
        # With early stopping, which depends on the clock, an order would only keep places empty.
        self.lag = given.parallel if source is None and given.early_stop == "none" else None
        self.live, self.steps = {}, {}

    def ask(self, number, point=None):
        point = point or (self.source.point(number) if self.source else None)
        if point:
            self.study.enqueue_trial(dict(point))
        else:
            # A sampler of its own for each trial: what it draws does not depend on a restart.
            self.study.sampler = self.optuna.samplers.TPESampler(seed=seed_of(self.seed, number), n_startup_trials=STARTUP,
                                                                 constant_liar=self.liar)
        trial = self.study.ask(self.kinds)
        assert trial.number == number
        self.live[number], self.steps[number] = trial, 0
        return {name: trial.params[name] for name in self.kinds}

    def report(self, number, step, value):
        """Optuna counts steps that were done, from 1 on, and takes each once."""
        if step < self.steps[number] or not math.isfinite(value):
            return False
        self.steps[number] = step + 1
        self.live[number].report(value, step + 1)
        is_at_its_end = self.max_steps is not None and step + 1 >= self.max_steps
        return self.live[number].should_prune() and not is_at_its_end

    def tell(self, trial):
        states = self.optuna.trial.TrialState
        ended = self.live.pop(trial.number)
        if trial.state == journal.DONE:
            self.study.tell(ended, trial.value)
        else:
            self.study.tell(ended, state=states.PRUNED if trial.state == journal.PRUNED else states.FAIL)
