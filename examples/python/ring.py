"""tuttirun -n 4 python3 ring.py: an array goes around all ranks, and each adds its own part."""

import numpy as np
import tutti

with tutti.init() as comm:
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    own = np.full(3, 10**comm.rank, np.int64)
    total, passing = own.copy(), own.copy()
    for step in range(comm.size - 1):
        came = np.empty_like(own)
        with tutti.group():  # both start together, so no rank waits for the order of the others
            comm.send(passing, right, tag=step)
            comm.recv(came, left, tag=step)
        passing, total = came, total + came
    print(f"rank {comm.rank}: {total}")
