"""Medians, spreads, and the test that tells a change from noise. Every list has a value for each round."""
import math
import statistics

median, geometric_mean = statistics.median, statistics.geometric_mean


def middle_half(values):
    """(first quartile, median, third quartile)."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    return tuple(statistics.quantiles(values, n=4, method="inclusive"))


def ratios(above, below):
    """Round by round, so that a mood of the machine that lasts longer than a round cancels out."""
    return [a / b for a, b in zip(above, below)]


def signed_ranks(values):
    """Ranks by size, doubled so that shared ones stay whole, of values that are not zero: [(rank, is_positive)]."""
    kept = [v for v in values if v != 0]
    return [(round(2 * rank), v > 0) for rank, v in zip(shared_ranks([abs(v) for v in kept]), kept)]


def wilcoxon_greater(values):
    """Exact probability, if positive and negative were equally likely, of a sum of positive ranks this large.

    The one-sided signed-rank test. It asks nothing of the shape of the noise but symmetry, and is exact
    however few the rounds: all of eight positive gives 1/256.
    """
    ranks = signed_ranks(values)
    reached = sum(rank for rank, is_positive in ranks if is_positive)
    ways = {0: 1}
    for rank, _ in ranks:
        more = dict(ways)
        for total, n in ways.items():
            more[total + rank] = more.get(total + rank, 0) + n
        ways = more
    return sum(n for total, n in ways.items() if total >= reached) / 2 ** len(ranks)


def is_slower(new, old, effect, significance):
    """Whether new takes longer than old by more than effect (0.03: 3 %) and beyond the noise."""
    logs = [math.log(r) for r in ratios(new, old)]
    return median(logs) > math.log(1 + effect) and wilcoxon_greater(logs) < significance


def shared_ranks(values):
    """The place of each value, from 1; equal ones share the mean of theirs."""
    return [(sum(other < v for other in values) + sum(other <= v for other in values) + 1) / 2 for v in values]
