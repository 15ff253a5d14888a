"""Medians, spreads, and the test that tells a change from noise. Every list has a value for each round."""
import math
import statistics

median = statistics.median


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
    ordered = sorted((v for v in values if v != 0), key=abs)
    ranks = []
    while len(ranks) < len(ordered):
        first = len(ranks)
        last = first
        while last + 1 < len(ordered) and abs(ordered[last + 1]) == abs(ordered[first]):
            last += 1
        shared = first + last + 2          # twice the mean of first + 1 .. last + 1
        ranks += [(shared, ordered[i] > 0) for i in range(first, last + 1)]
    return ranks


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


def geometric_mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values))
