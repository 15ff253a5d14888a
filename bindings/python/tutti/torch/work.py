"""Work: one call of the library, or several in a group, from its issue to its end.

The thread that waits does so in the library, as fast as in a blocking call. Nothing else waits, but for a future
that somebody asked for (futures.py)."""

import ctypes
from _thread import RLock

import torch
from torch._C._distributed_c10d import Work as _TorchWork

from .._library import IN_PROGRESS, OK, lib
from .failures import failure, refused, timed_out
from .tensors import PREMUL_SUM, Blocks, ScaledSum, is_plain, moved, plain_copy, plain_like, reduced

SLICE_MS = 50  # of a wait in the library: a signal such as Ctrl-C is seen in between
_wait, _test = lib.tutti_work_wait, lib.tutti_work_test


def milliseconds(timeout) -> int:
    """Of a timedelta, or of seconds. 0: none was named, as with None and torch's negative ones."""
    if timeout is None or getattr(timeout, "days", 0) < 0:
        return 0
    seconds = timeout.total_seconds() if hasattr(timeout, "total_seconds") else float(timeout)
    return min(max(int(seconds * 1000), 1), 0x7FFFFFFF) if seconds > 0 else 0


class Work(_TorchWork):
    """Calls are added to it, then a lane issues it. The library's handle lies in slot."""

    error = None
    is_collective = True
    is_issued = is_over = False
    future = None
    sender = None  # of a recv from anybody: the rank, in a c_int
    timeout_ms = tag = 0
    device = stream = None
    copies = ()  # (tensor, stand-in) of outputs that are not contiguous

    def __init__(self, results):
        _TorchWork.__init__(self)
        self.results = results
        self.calls = []
        self.kept = []  # what the library reads and writes until the end
        self.slot = slot = ctypes.c_void_p()
        self.slot_address = ctypes.addressof(slot)
        self.turn = RLock()  # one thread at a time waits in the library; R: a signal's handler may wait again

    # ---- before the issue

    def check(self, tensor) -> None:
        if not tensor.is_cpu:
            raise refused(f"tutti: this call is on the CPU, and has a tensor on {tensor.device}: one device is needed")

    def input(self, tensor):
        self.check(tensor)
        buffer = tensor if is_plain(tensor) else plain_copy(tensor)
        self.kept.append(buffer)
        return buffer

    def output(self, tensor):
        self.check(tensor)
        if is_plain(tensor):
            self.kept.append(tensor)
            return tensor
        buffer = plain_like(tensor)
        self._copy_at_end([(tensor, buffer)])
        return buffer

    def in_out(self, tensor, is_written: bool = True):
        if tensor.is_cpu and is_plain(tensor):  # as input() does, in fewer calls
            self.kept.append(tensor)
            return tensor
        buffer = self.input(tensor)
        if buffer is not tensor and is_written:
            self._copy_at_end([(tensor, buffer)])
        return buffer

    def blocks(self, tensors, like, is_output: bool) -> tuple:
        """(address, counts, offsets) of tensors as one buffer, in elements of the library's dtype for like's."""
        dtype, elements = moved(like)
        use = self.output if is_output else self.input
        blocks = Blocks([use(t) for t in tensors], dtype, elements, is_output)
        self.kept.append(blocks)
        if blocks.flat is not None:
            self.kept.append(blocks.flat)
            if is_output:
                self.copies = blocks.copies() + list(self.copies)
        return blocks.address, blocks.counts, blocks.offsets

    def reduction(self, tensor, op) -> tuple:
        """(dtype, elements, op) of tensor's reduction."""
        if hash(op) != PREMUL_SUM:
            return reduced(tensor, op)
        scaled = ScaledSum(tensor, op)
        self.kept.append(scaled)
        return scaled.dtype, scaled.elements, scaled.number

    def _copy_at_end(self, pairs) -> None:
        self.copies = list(self.copies) + pairs
        self.kept.extend(buffer for _, buffer in pairs)

    # ---- its end

    def end(self, status: int) -> None:
        """With turn held, once: when the library is through with the buffers."""
        if status != OK:
            self.error = failure(status, self.lane.handle)
        elif self.copies:
            try:
                self._copy()
            except Exception as error:
                self.error = error
        self.is_over = True
        self.lane.forget(self)
        self.kept = self.copies = self.calls = ()

    def _copy(self) -> None:
        with torch.no_grad():
            for tensor, buffer in self.copies:
                tensor.copy_(buffer)

    def await_end(self, timeout_ms: int = 0) -> bool:
        """False: timeout_ms has passed (0: only the call's own deadline counts)."""
        if not self.turn.acquire(True, timeout_ms / 1000 if timeout_ms else -1):
            return False
        try:
            left = timeout_ms
            while not self.is_over:
                piece = min(left, SLICE_MS) if timeout_ms else SLICE_MS
                status = _wait(self.slot_address, piece)
                if status != IN_PROGRESS:
                    self.end(status)
                elif timeout_ms:
                    left -= piece
                    if left <= 0:
                        return False
            return True
        finally:
            self.turn.release()

    def poll(self) -> bool:
        """Whether it is over. Never blocks."""
        if self.is_over or not self.is_issued or not self.turn.acquire(False):
            return self.is_over
        try:
            if not self.is_over:
                done = ctypes.c_int()
                _test(self.slot, ctypes.byref(done))
                if done.value:
                    self.end(_wait(self.slot_address, SLICE_MS))
            return self.is_over
        finally:
            self.turn.release()

    # ---- what torch calls

    def wait(self, timeout=None) -> bool:
        if not self.is_over:
            timeout_ms = milliseconds(timeout)
            if not self.await_end(timeout_ms):
                raise timed_out(f"tutti: this wait's own timeout of {timeout_ms} ms passed; the call goes on")
        if self.error is not None:
            raise self.error.with_traceback(None)  # without the frames that raised it before
        return True

    def synchronize(self) -> None:
        self.wait()

    def get_future(self):
        if self.future is None:
            self.future = self.lane.future_of(self, self.is_collective)
        return self.future

    def is_completed(self) -> bool:
        return self.poll()

    def is_success(self) -> bool:
        return self.poll() and self.error is None

    def exception(self):
        return self.error

    def result(self):
        return self.results

    def source_rank(self) -> int:
        return -1 if self.sender is None else self.sender.value

    _source_rank = source_rank

    def abort(self) -> None:
        lib.tutti_work_cancel(self.slot)
