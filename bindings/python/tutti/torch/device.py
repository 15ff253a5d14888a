"""Works on CUDA tensors: in order of streams, and without a wait of the CPU.

A call starts after what its stream, torch's current one, already holds. wait() makes the stream that is current then
wait for the call. Where torch says that nobody else will wait (asyncOp of torch >= 2.8 is false), the call is enqueued
in the current stream itself. A future is complete at once, and its callbacks run on streams that wait for the call, as
with NCCL: so they run in the order of the program."""

import functools

import torch
from torch.futures import Future

from .._library import OK, lib
from .failures import failure, refused
from .work import Work, milliseconds


@functools.lru_cache(maxsize=None)
def _future_stream(device):
    """Where futures' values are, until callbacks take them to streams of their own."""
    return torch.cuda.Stream(device)


def stream_of(device) -> int:
    return torch.cuda.current_stream(device).cuda_stream


class DeviceWork(Work):
    copied = None  # an event after the copies to outputs that are not contiguous
    is_enqueued = False  # in its stream, without a handle

    def __init__(self, results, device):
        super().__init__(results)
        self.device = device
        self.stream = stream_of(device)

    def check(self, tensor) -> None:
        if tensor.device != self.device:
            raise refused(f"tutti: one call has tensors on {self.device} and on {tensor.device}")

    def enqueue(self) -> None:
        """Before the issue: nobody waits but this stream."""
        self.is_enqueued, self.slot_address = True, None

    def end(self, status: int) -> None:
        """Copies to outputs are work of a stream: of the one that waits, or now, of the one that has the call."""
        if self.is_enqueued:
            super().end(status)
            return
        copies, self.copies = self.copies, ()
        super().end(status)
        self.copies, self.kept = copies, [buffer for _, buffer in copies]

    def wait(self, timeout=None) -> bool:
        if milliseconds(timeout):
            super().wait(timeout)
        if self.error is not None:
            raise self.error
        stream = torch.cuda.current_stream(self.device)
        with self.turn:
            if not self.is_over:
                status = lib.tutti_work_wait_stream(self.slot, stream.cuda_stream)
                if status != OK:
                    self.error = failure(status, self.lane.handle)
                    raise self.error
            self._copy_in(stream)
        return True

    def _copy_in(self, stream) -> None:
        """And lets go of the tensors: their memory is used again in order of the streams that are told of here."""
        if self.copied is not None:
            stream.wait_event(self.copied)
        elif self.copies:
            self._copy()
            self.copied = stream.record_event()
            self.copies = ()
        for kept in self.kept:
            if isinstance(kept, torch.Tensor):
                kept.record_stream(stream)
        self.kept = ()

    def get_future(self):
        if self.future is None:
            side = _future_stream(self.device)
            if self.is_over:
                side.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(side):
                self.wait()
                self.future = Future(devices=[self.device])
                self.future.set_result(self.results)
        return self.future

    def source_rank(self) -> int:
        self.await_end()
        return super().source_rank()

    _source_rank = source_rank
