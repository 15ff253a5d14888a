"""One rank of a job in which rank 1 dies once: the others go on, and a new process takes its place."""

import array
import os
import signal

import tutti

SIZE, STEPS = 3, 6
is_new = "TUTTI_RESTARTED" in os.environ
comm = tutti.init(timeout=60)
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
        comm.recover(SIZE)
        assert comm.size == SIZE and comm.failure is None
        step, total = comm.broadcast_object((step, total), 0)
        continue
    step, total = step + 1, total + x[0]
assert total == SIZE * STEPS, total
comm.destroy()
print(f"rank {comm.rank} took {'the place of one that died' if is_new else 'part from the beginning'}")
