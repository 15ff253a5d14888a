"""One rank whose buffers are in a GPU's memory, of the driver that tests emulate: through __cuda_array_interface__, its streams."""

import asyncio
import contextlib
import ctypes
import threading

import numpy as np
import tutti
from checks import raises

cuda = ctypes.CDLL("libcuda.so.1")


def do(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    assert status == 0, f"{name}: {status}"


do("cuInit", 0)
comm_of_host = tutti.init(timeout=60)
rank, P = comm_of_host.rank, comm_of_host.size
device, context = ctypes.c_int(), ctypes.c_void_p()
do("cuDeviceGet", ctypes.byref(device), rank)
do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
do("cuCtxSetCurrent", context)
comm = comm_of_host.split(0, device=rank)
N = 1000


def copy(to, from_, length, stream):
    do("cuMemcpyAsync", ctypes.c_uint64(to), ctypes.c_uint64(from_), ctypes.c_size_t(length), stream)


stream, copies = ctypes.c_void_p(), ctypes.c_void_p()
for made in (stream, copies):
    do("cuStreamCreateWithPriority", ctypes.byref(made), 1, 0)


class Memory:
    """What CuPy's arrays and torch's tensors have."""

    def __init__(self, values, stream=None):
        self.values = values
        address = ctypes.c_uint64()
        do("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(values.nbytes))
        self.address = address.value
        copy(self.address, values.ctypes.data, values.nbytes, copies)
        do("cuStreamSynchronize", copies)
        facts = {"shape": values.shape, "typestr": values.dtype.str, "data": (self.address, False), "version": 3}
        self.__cuda_array_interface__ = dict(facts, stream=stream.value if stream else None)

    def get(self):
        return read(self.address, self.values)


def read(address, like):
    out = np.zeros_like(like)
    copy(out.ctypes.data, address, out.nbytes, copies)
    do("cuStreamSynchronize", copies)
    return out


ones = np.full(N, rank + 1, np.float32)
total = P * (P + 1) // 2

x = Memory(ones)
comm.all_reduce(x)
assert (x.get() == total).all()

# In the stream: behind its earlier work, and the call does not wait for that.
y, go = Memory(ones), threading.Event()
HOLD = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
hold = HOLD(lambda _: go.wait())
do("cuLaunchHostFunc", stream, hold, None)
comm.all_reduce(y, stream=stream.value)
go.set()
do("cuStreamSynchronize", stream)
assert (y.get() == total).all()

# A work begins after the earlier work of the stream that its array came with.
z, source = Memory(np.zeros(N, np.float32), stream), Memory(ones)
go.clear()
do("cuLaunchHostFunc", stream, hold, None)
copy(z.address, source.address, ones.nbytes, stream)
work = comm.start.all_reduce(z)
assert not work.test()
go.set()
work.wait()
assert (z.get() == total).all()


async def awaits():
    go.clear()
    do("cuLaunchHostFunc", stream, hold, None)
    copy(z.address, source.address, ones.nbytes, stream)
    asyncio.get_running_loop().call_later(0.01, go.set)
    await comm.start.all_reduce(z)


asyncio.run(awaits())
assert (z.get() == total).all()

with tutti.group():
    comm.all_reduce(x)
    comm.broadcast(y, P - 1)
assert (x.get() == total * P).all() and (y.get() == total).all()

# So does a group; arrays of two streams are no longer in any order.
go.clear()
do("cuLaunchHostFunc", stream, hold, None)
copy(z.address, source.address, ones.nbytes, stream)
with tutti.group(wait=False) as g:
    comm.all_reduce(z)
assert not g.work.test()
go.set()
g.work.wait()
assert (z.get() == total).all()
for block in (tutti.group(), contextlib.nullcontext()):
    with raises(tutti.InvalidError, "come with different streams"), block:
        comm.all_reduce(z, x)

# Between a GPU and the host's memory in one call: refused, with both said.
try:
    comm.all_reduce(x, np.zeros(N, np.float32))
except tutti.InvalidError as error:
    assert "memory" in str(error), error
else:
    raise AssertionError("host and device in one call")

shared = comm.mem_alloc((10, 100), "f32")
facts = shared.__cuda_array_interface__
assert facts["shape"] == (10, 100) and facts["typestr"] == "<f4"
assert (read(facts["data"][0], ones) == 0).all()
comm.all_reduce(shared)
comm.destroy()
comm_of_host.destroy()
