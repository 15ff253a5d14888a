"""c10d's calls, each as one or more calls of the library in one work. Lists of tensors are coalesced calls.

Every method has torch's name and arguments; the same bodies serve as a ProcessGroup's and, by delegation, as a
Backend's methods (group.py). submit() issues a work."""

import ctypes

from torch.distributed import ReduceOp

from .._library import lib
from .device import DeviceWork, stream_of
from .failures import refused
from .sparse import all_reduce_sparse
from .tensors import moved, same_dtype
from .work import Work, milliseconds

ANY = -1
_LAST_TAG = 0x7FFFFFFF


def _counts(values) -> ctypes.Array:
    return (ctypes.c_size_t * len(values))(*values)


def _op_of(options):
    """Options, an op by itself, or nothing."""
    return ReduceOp.SUM if options is None else getattr(options, "reduceOp", options)


def _each(tensors):
    return tensors if isinstance(tensors, (list, tuple)) else [tensors]


def _pairs(call: str, outputs, inputs):
    if len(outputs) != len(inputs):
        raise refused(f"tutti: {call}: {len(inputs)} inputs and {len(outputs)} outputs: as many of both are needed")
    return zip(outputs, inputs)


def _begin(results, tensors) -> Work:
    """A work on tensors like the first."""
    first = next(iter(tensors), None)
    if isinstance(first, (list, tuple)):
        first = next(iter(first), None)
    return DeviceWork(results, first.device) if first is not None and first.is_cuda else Work(results)


class Collectives:
    # ---- the same tensor everywhere

    def allreduce(self, tensors, opts=None):
        tensors = _each(tensors)
        op = _op_of(opts)
        if tensors and tensors[0].is_sparse:
            return all_reduce_sparse(self, tensors, op)
        work = _begin(tensors, tensors)
        for tensor in tensors:
            buffer = work.in_out(tensor)
            dtype, elements, number = work.reduction(tensor, op)
            place = buffer.data_ptr()
            work.calls.append((lib.tutti_all_reduce, place, place, buffer.numel() * elements, dtype, number))
        return self.submit(work, opts)

    allreduce_coalesced = allreduce

    def reduce(self, tensors, opts):
        work, is_root = _begin(tensors, tensors), opts.rootRank == self.own_rank
        for tensor in tensors:
            buffer = work.in_out(tensor, is_written=is_root)
            dtype, elements, number = work.reduction(tensor, opts.reduceOp)
            place = buffer.data_ptr()
            result = place if is_root else None
            count = buffer.numel() * elements
            work.calls.append((lib.tutti_reduce, place, result, count, dtype, number, opts.rootRank))
        return self.submit(work, opts)

    def broadcast(self, tensors, opts):
        work = _begin(tensors, tensors)
        for tensor in tensors:
            buffer = work.in_out(tensor, is_written=opts.rootRank != self.own_rank)
            dtype, elements = moved(tensor)
            place = buffer.data_ptr()
            work.calls.append((lib.tutti_broadcast, place, place, buffer.numel() * elements, dtype, opts.rootRank))
        return self.submit(work, opts)

    # ---- a tensor of each rank to every rank

    def _gather_list(self, work, outputs, tensor) -> None:
        result = self._blocks(work, "all_gather", outputs, tensor, is_output=True)
        source = work.input(tensor)
        dtype, _ = moved(tensor)
        work.calls.append((lib.tutti_all_gatherv, source.data_ptr(), *result, dtype))

    def allgather(self, outputs, inputs, opts=None):
        work = _begin(list(outputs), inputs)
        for listed, tensor in _pairs("all_gather", outputs, inputs):
            self._gather_list(work, listed, tensor)
        return self.submit(work, opts)

    def allgather_coalesced(self, outputs, inputs, opts=None):
        """outputs[rank][i] is for inputs[i]."""
        work = _begin(list(outputs), inputs)
        for i, tensor in enumerate(inputs):
            self._gather_list(work, [outputs[rank][i] for rank in range(self.ranks)], tensor)
        return self.submit(work, opts)

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        work = _begin(list(outputs), inputs)
        for output, tensor in _pairs("all_gather_into_tensor", outputs, inputs):
            same_dtype("all_gather_into_tensor", tensor, output)
            self._times("all_gather_into_tensor", output, tensor)
            source, result = work.input(tensor), work.output(output)
            dtype, elements = moved(tensor)
            count = source.numel() * elements
            work.calls.append((lib.tutti_all_gather, source.data_ptr(), result.data_ptr(), count, dtype))
        return self.submit(work, opts)

    def _allgather_base(self, output, tensor, opts=None):
        return self.allgather_into_tensor_coalesced([output], [tensor], opts)

    # ---- to and from one rank

    def gather(self, outputs, inputs, opts):
        root, work = opts.rootRank, _begin(list(outputs), inputs)
        for i, tensor in enumerate(inputs):
            source = work.input(tensor)
            dtype, _ = moved(tensor)
            listed = outputs[i] if self.own_rank == root else None
            result = self._blocks(work, "gather", listed, tensor, is_output=True)
            work.calls.append((lib.tutti_gatherv, source.data_ptr(), *result, dtype, root))
        return self.submit(work, opts)

    def scatter(self, outputs, inputs, opts):
        root, work = opts.rootRank, _begin(outputs, outputs)
        for i, tensor in enumerate(outputs):
            result = work.output(tensor)
            dtype, _ = moved(tensor)
            listed = inputs[i] if self.own_rank == root else None
            source, *table = self._blocks(work, "scatter", listed, tensor, is_output=False)
            work.calls.append((lib.tutti_scatterv, source, result.data_ptr(), *table, dtype, root))
        return self.submit(work, opts)

    # ---- reduced parts

    def reduce_scatter(self, outputs, inputs, opts=None):
        work, op = _begin(outputs, outputs), _op_of(opts)
        for output, listed in _pairs("reduce_scatter", outputs, inputs):
            source, *table = self._blocks(work, "reduce_scatter", listed, output, is_output=False)
            result = work.output(output)
            dtype, _, number = work.reduction(output, op)
            work.calls.append((lib.tutti_reduce_scatterv, source, result.data_ptr(), *table, dtype, number))
        return self.submit(work, opts)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        work, op = _begin(list(outputs), inputs), _op_of(opts)
        for output, tensor in _pairs("reduce_scatter_tensor", outputs, inputs):
            same_dtype("reduce_scatter_tensor", output, tensor)
            self._times("reduce_scatter_tensor", tensor, output)
            source, result = work.input(tensor), work.output(output)
            dtype, elements, number = work.reduction(output, op)
            count = result.numel() * elements
            arguments = (source.data_ptr(), result.data_ptr(), count, dtype, number)
            work.calls.append((lib.tutti_reduce_scatter, *arguments))
        return self.submit(work, opts)

    def _reduce_scatter_base(self, output, tensor, opts=None):
        return self.reduce_scatter_tensor_coalesced([output], [tensor], opts)

    # ---- a part of each rank to each rank

    def alltoall(self, outputs, inputs, opts=None):
        self._one_each("all_to_all", inputs)
        work, own = _begin(list(outputs), inputs), inputs[self.own_rank]
        sent = self._blocks(work, "all_to_all", inputs, own, is_output=False)
        got = self._blocks(work, "all_to_all", outputs, own, is_output=True)
        dtype, _ = moved(own)
        work.calls.append((lib.tutti_all_to_allv, *sent, *got, dtype))
        return self.submit(work, opts)

    def alltoall_base(self, output, tensor, output_sizes, input_sizes, opts=None):
        same_dtype("all_to_all_single", output, tensor)
        work = _begin([output], [tensor])
        source, result = work.input(tensor), work.output(output)
        sent, got = self._rows("input", source, input_sizes), self._rows("output", result, output_sizes)
        dtype, _ = moved(output)
        arguments = (source.data_ptr(), sent, None, result.data_ptr(), got, None, dtype)
        work.calls.append((lib.tutti_all_to_allv, *arguments))
        return self.submit(work, opts)

    def _rows(self, what: str, tensor, sizes) -> ctypes.Array:
        """Elements for each rank, of sizes in rows; no sizes: equal ones."""
        rows = tensor.size(0) if tensor.dim() else 1
        if not sizes:
            if rows % self.ranks:
                raise refused(f"tutti: all_to_all_single: {what} of {rows} rows does not divide by {self.ranks} ranks")
            sizes = [rows // self.ranks] * self.ranks
        elif len(sizes) != self.ranks or sum(sizes) != rows:
            raise refused(f"tutti: all_to_all_single: {what} of {rows} rows, and sizes are {list(sizes)}")
        _, elements = moved(tensor)
        row = tensor.numel() // rows * elements if rows else 0
        return _counts([size * row for size in sizes])

    # ---- messages, and waiting for each other

    def send(self, tensors, rank: int, tag: int = 0):
        work = self._message(tensors, tag)
        return self._submit_message(work, lib.tutti_send, work.input(tensors[0]), rank)

    def recv(self, tensors, rank: int, tag: int = 0):
        if rank < 0:  # not ANY: it may be a mistake, as rank - 1 of rank 0
            raise refused(f"tutti: recv: there is no rank {rank}; leave the source out to receive from anybody")
        return self._receive(tensors, rank, tag)

    def recv_anysource(self, tensors, tag: int = 0):
        return self._receive(tensors, ANY, tag)

    def _receive(self, tensors, rank: int, tag: int) -> Work:
        work = self._message(tensors, tag)
        work.sender = ctypes.c_int(rank)
        return self._submit_message(work, lib.tutti_recv, work.output(tensors[0]), rank)

    def _message(self, tensors, tag: int) -> Work:
        if len(tensors) != 1:
            raise refused(f"tutti: a message is one tensor, and here are {len(tensors)}")
        if not 0 <= tag <= _LAST_TAG:  # ctypes would cut it to a c_int
            raise refused(f"tutti: a message's tag is from 0 to {_LAST_TAG}, and this is {tag}")
        work = _begin(tensors, tensors)
        work.is_collective, work.tag = False, tag
        return work

    def _submit_message(self, work, function, buffer, rank: int) -> Work:
        dtype, elements = moved(buffer)
        work.calls.append((function, buffer.data_ptr(), buffer.numel() * elements, dtype, rank))
        return self.submit(work)

    def barrier(self, opts=None):
        work = Work([])
        if self.device is not None:  # after what the current stream holds; the CPU waits
            work.stream = stream_of(self.device)
        work.calls.append((lib.tutti_barrier,))
        return self.submit(work, opts)

    def monitored_barrier(self, timeout=None, wait_all_ranks: bool = False):
        """Ranks that do not come in time are named by the error, all of them in any case."""
        work = Work([])
        work.timeout_ms = milliseconds(getattr(timeout, "timeout", timeout))
        work.calls.append((lib.tutti_barrier,))
        self.submit(work).wait()

    # ---- lists of tensors, and checks that torch leaves to its backends

    def _blocks(self, work, call: str, tensors, own, is_output: bool) -> tuple:
        """(address, counts, offsets) of tensors, one of own's dtype for each rank. own is what this rank's one is copied
        to or from. tensors is None on a rank that only has own: so many elements are each rank's."""
        if tensors is None:
            _, elements = moved(own)
            return None, _counts([own.numel() * elements] * self.ranks), None
        self._one_each(call, tensors)
        same_dtype(call, own, *tensors)
        listed = tensors[self.own_rank].numel()
        if listed != own.numel():
            raise refused(
                f"tutti: {call}: rank {self.own_rank} has a tensor of {own.numel()} elements, and the one for it in its "
                f"list has {listed}"
            )
        return work.blocks(tensors, own, is_output)

    def _one_each(self, call: str, tensors) -> None:
        if len(tensors) != self.ranks:
            raise refused(f"tutti: {call}: {len(tensors)} tensors for {self.ranks} ranks")

    def _times(self, call: str, large, small) -> None:
        if large.numel() != small.numel() * self.ranks:
            raise refused(
                f"tutti: {call}: the large tensor has {large.numel()} elements; "
                f"{self.ranks} ranks with {small.numel()} make {small.numel() * self.ranks}"
            )


# torch 2.14 has new names for some of them.
Collectives.all_gather_single = Collectives._allgather_base
Collectives.all_gather_single_coalesced = Collectives.allgather_into_tensor_coalesced
Collectives.reduce_scatter_single = Collectives._reduce_scatter_base
Collectives.reduce_scatter_single_coalesced = Collectives.reduce_scatter_tensor_coalesced
Collectives.all_to_all_single = Collectives.alltoall_base
