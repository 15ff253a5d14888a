"""tuttirun -n 4 python3 all_reduce.py: the sum of an array over all ranks, in place and in flight."""

import numpy as np
import tutti

with tutti.init() as comm:
    x = np.full(4, comm.rank + 1, np.float32)
    comm.all_reduce(x)  # in place; returns when the result is there
    work = comm.start.all_reduce(x, op=tutti.MAX)  # returns at once; x is the library's until it is over
    work.wait()
    print(f"rank {comm.rank} of {comm.size}: {x}")
