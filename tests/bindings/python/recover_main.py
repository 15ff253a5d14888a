"""One rank of a job in which rank 1 dies once: the others go on, and a new process takes its place.

With a file they join by a config alone, which the communicator remembers, and grow by its own calls.
"""

import array
import os
import signal
import sys

import tutti

SIZE, STEPS = 3, 6
is_new = "TUTTI_RESTARTED" in os.environ
place = {}
if len(sys.argv) > 1:
    place = {"rank": int(os.environ["RANK"]), "world_size": SIZE, "rendezvous": f"file://{sys.argv[1]}", "secret": "ours alone"}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TUTTI_SECRET"):
        os.environ.pop(name, None)
comm = tutti.init(timeout=60, **place)
step, total = 0, 0
if is_new:
    step, total = comm.broadcast_object(None, 0)
while step < STEPS:
    if comm.rank == 1 and step == 2 and not is_new:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        x = array.array("i", [1])
        comm.all_reduce(x)
    except (tutti.PeerError, tutti.AbortedError, tutti.TimeoutError):
        if place:
            left = comm.shrink()
            comm.destroy()
            comm = left.grow(SIZE, timeout=50)
            left.destroy()
        else:
            comm.recover(SIZE)
        assert comm.size == SIZE and comm.failure is None
        step, total = comm.broadcast_object((step, total), 0)
        continue
    step, total = step + 1, total + x[0]
assert total == SIZE * STEPS, total
comm.destroy()
print(f"rank {comm.rank} took {'the place of one that died' if is_new else 'part from the beginning'}")
