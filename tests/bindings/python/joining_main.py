"""Joining: what init's arguments do, and Ctrl-C while a rank waits for others that do not come."""

import os
import signal
import threading

import tutti
from checks import raises

url = tutti.rendezvous_open()


init, inside = tutti._library.lib.tutti_init, []
tutti._library.lib.tutti_init = lambda *arguments: inside.append(None) or init(*arguments)


def interrupt():
    while not inside:
        pass
    os.kill(os.getpid(), signal.SIGINT)


threading.Thread(target=interrupt).start()
with raises(KeyboardInterrupt):
    tutti.init(rank=0, world_size=2, rendezvous=url, timeout=60)
tutti.rendezvous_close(url)

with tutti.init(world_size=1, name="alone", timeout=12.5, deterministic=1) as comm:
    assert (comm.rank, comm.size) == (0, 1)
    assert comm.config.name == "alone" and comm.config.timeout == 12.5 and comm.config.deterministic == 1
with raises(tutti.InvalidError, match="rank"):
    tutti.init(rank=5, world_size=2)
with raises(TypeError):
    tutti.init(ranks=5)
with raises(tutti.TimeoutError, match="rank"):
    tutti.init(rank=0, world_size=2, rendezvous=f"file://{os.getcwd()}/meeting", timeout=0.2)
comms = tutti.init_all(3)
assert [c.rank for c in comms] == [0, 1, 2]
parts = [bytearray([i]) for i in range(3)]
with tutti.group():
    for comm, part in zip(comms, parts):
        comm.all_reduce(part)
assert parts == [bytearray([3])] * 3
works = [comm.start.broadcast(part, 1) for comm, part in zip(comms, parts)]
for work in works:
    work.wait()
# Each in a thread of its own, with blocking calls.
sums = [bytearray([1]) for _ in comms]
threads = [threading.Thread(target=comm.all_reduce, args=(x,)) for comm, x in zip(comms, sums)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert sums == [bytearray([3])] * 3
for comm in comms:
    comm.destroy()
assert tutti.version().startswith("0.") and tutti.revision() and tutti.crc32c(b"123456789") == 0xE3069283
tutti.trace_dump("trace.json")
assert os.path.getsize("trace.json") > 0
