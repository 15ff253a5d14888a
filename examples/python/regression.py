"""tuttirun -n 4 python3 regression.py: data-parallel logistic regression in NumPy. Each rank has its part of the samples.

The gradients are averaged by one all_reduce a step, so all ranks keep the same weights, bit for bit.
"""

import numpy as np
import tutti

SAMPLES, FEATURES, STEPS, RATE = 4096, 16, 60, 1.0


def my_part(comm):
    """Samples of one distribution, with labels of one hidden vector; the same data for any number of ranks."""
    numbers = np.random.default_rng(7)
    x = numbers.standard_normal((SAMPLES, FEATURES))
    y = (x @ numbers.standard_normal(FEATURES) > 0).astype(float)
    return x[comm.rank :: comm.size], y[comm.rank :: comm.size]


with tutti.init() as comm:
    x, y = my_part(comm)
    weights = np.zeros(FEATURES)
    comm.broadcast(weights)  # rank 0's
    sums = np.zeros(FEATURES + 1)  # the gradient, and the loss behind it
    for step in range(STEPS):
        p = 1 / (1 + np.exp(-x @ weights))
        sums[:-1] = x.T @ (p - y)
        sums[-1] = -np.sum(y * np.log(p) + (1 - y) * np.log(1 - p))
        comm.all_reduce(sums, label=f"step {step}")
        weights -= RATE / SAMPLES * sums[:-1]
        if comm.rank == 0 and step % 20 == 0:
            print(f"step {step}: loss {sums[-1] / SAMPLES:.4f}")
    right = np.array([np.sum((x @ weights > 0) == y)])
    comm.reduce(right)
    if comm.rank == 0:
        print(f"{100 * right[0] / SAMPLES:.1f} % of the labels are right")
