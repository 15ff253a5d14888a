#!/usr/bin/env python3
"""tutti.torch on CUDA tensors: 2 ranks on one GPU, every collective, DDP and FSDP2 against the same on the CPU.

By hand, on a machine with a GPU:
    LIBTUTTI=build/release/libtutti.so.1 PYTHONPATH=bindings/python python3 tests/bindings/torch_cuda.py [TEST...]
Ranks are spawned, since CUDA does not live through a fork."""

import copy
import os
import sys
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

import tutti.torch  # noqa: F401 registers the backend

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8, torch.bool]
COUNTS = [1, 37, 5000, 300_000]
DELAY_CYCLES = 200_000_000  # about 0.1 s, in which a stream has not yet written what is sent


def values(dtype, rank: int, count: int):
    numbers = torch.arange(count, dtype=torch.int64) * (rank + 2) % 5 + rank
    return numbers % 2 == 0 if dtype is torch.bool else numbers.to(dtype)


def same(got, wanted, *what) -> None:
    got = got.cpu()
    assert torch.equal(got, wanted), f"{what}: {got.flatten()[:8]} is not {wanted.flatten()[:8]}"


def summed(dtype, size: int, count: int):
    each = torch.stack([values(dtype, r, count) for r in range(size)])
    return each.any(0) if dtype is torch.bool else each.to(torch.float64).sum(0).to(dtype)


def test_collectives(rank: int, size: int, gpu) -> None:
    for dtype in DTYPES:
        for count in COUNTS:
            own, each = values(dtype, rank, count), [values(dtype, r, count) for r in range(size)]
            here = own.to(gpu)
            tensor = here.clone()
            dist.all_reduce(tensor)
            same(tensor, summed(dtype, size, count), "all_reduce", dtype, count)
            tensor = here.clone()
            dist.broadcast(tensor, size - 1)
            same(tensor, each[-1], "broadcast", dtype, count)
            tensor = here.clone()
            dist.reduce(tensor, 0)
            if rank == 0:
                same(tensor, summed(dtype, size, count), "reduce", dtype, count)
            outputs = [torch.empty_like(here) for _ in each]
            dist.all_gather(outputs, here)
            for got, wanted in zip(outputs, each):
                same(got, wanted, "all_gather", dtype, count)
            flat = torch.empty(size * count, dtype=dtype, device=gpu)
            dist.all_gather_into_tensor(flat, here)
            same(flat, torch.cat(each), "all_gather_into_tensor", dtype, count)
            whole = torch.cat([own] * size).to(gpu)
            output = torch.empty_like(here)
            dist.reduce_scatter_tensor(output, whole)
            same(output, summed(dtype, size, count), "reduce_scatter_tensor", dtype, count)
            dist.reduce_scatter(output, [here.clone() for _ in each])
            same(output, summed(dtype, size, count), "reduce_scatter", dtype, count)
            outputs = [torch.empty_like(here) for _ in each] if rank == 0 else None
            dist.gather(here, outputs)
            for got, wanted in zip(outputs or [], each):
                same(got, wanted, "gather", dtype, count)
            dist.scatter(output, [t.to(gpu) for t in each] if rank == 0 else None)
            same(output, own, "scatter", dtype, count)
            flat.zero_()
            dist.all_to_all_single(flat, whole)
            same(flat, torch.cat(each), "all_to_all_single", dtype, count)
            outputs = [torch.empty_like(here) for _ in each]
            dist.all_to_all(outputs, [here.clone() for _ in each])
            same(torch.cat(outputs), torch.cat(each), "all_to_all", dtype, count)
            requests = dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, here, (rank + 1) % size), dist.P2POp(dist.irecv, output, (rank - 1) % size)]
            )
            for request in requests:
                request.wait()
            same(output, each[rank - 1], "send, recv", dtype, count)
    dist.barrier()


def test_shapes(rank: int, size: int, gpu) -> None:
    tensor = (torch.arange(12.0).view(3, 4) * (rank + 1)).to(gpu).t()
    dist.all_reduce(tensor)
    same(tensor, torch.arange(12.0).view(3, 4).t() * 3, "transposed")
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    with torch.cuda.stream(torch.cuda.Stream()):
        work.wait()
        same(tensor, torch.arange(12.0).view(3, 4).t() * 6, "transposed, another stream")


def test_streams(rank: int, size: int, gpu) -> None:
    """What the current stream has yet to write is sent, the wait is the stream's, and the CPU is not held up."""
    side, tensor = torch.cuda.Stream(), torch.zeros(5000, device=gpu)
    dist.all_reduce(tensor)
    with torch.cuda.stream(side):  # a kernel's first launch loads it, which waits for the GPU
        torch.cuda._sleep(1000)
        tensor.fill_(0).mul_(10)
    torch.cuda.synchronize()
    dist.barrier()
    with torch.cuda.stream(side):
        begun = time.perf_counter()
        torch.cuda._sleep(DELAY_CYCLES)
        tensor.fill_(rank + 1)
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        tensor.mul_(10)
        issued = time.perf_counter() - begun
        side.synchronize()
        whole = time.perf_counter() - begun
    same(tensor, torch.full((5000,), 30.0), "streams")
    print(f"rank {rank}: issued in {issued * 1e3:.2f} ms of {whole * 1e3:.2f}", flush=True)
    assert issued < whole / 2, "the CPU was held up"
    tensor.fill_(1)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    future.then(lambda f: f.value()[0].add_(1)).wait()
    same(tensor, torch.full((5000,), 3.0), "future")


def steps(model, inputs) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(4):
        optimizer.zero_grad()
        model(inputs).pow(2).mean().backward()
        optimizer.step()


def close(got, wanted, what: str) -> None:
    for (name, a), b in zip(got, wanted):
        a = a.detach()
        a = (a.full_tensor() if hasattr(a, "full_tensor") else a).cpu()
        assert torch.allclose(a, b.detach(), rtol=1e-4, atol=1e-6), f"{what}: {name} is up to {(a - b).abs().max()} off"


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 32))


def test_training(rank: int, size: int, gpu) -> None:
    inputs = torch.randn(16, 64, generator=torch.Generator().manual_seed(rank))
    reference = DistributedDataParallel(network(), process_group=dist.new_group(backend="gloo"))
    steps(reference, inputs)
    wanted = list(reference.module.parameters())
    model = DistributedDataParallel(copy.deepcopy(network()).to(gpu), device_ids=[gpu], bucket_cap_mb=0.05)
    steps(model, inputs.to(gpu))
    close(model.module.named_parameters(), wanted, "DDP")
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        return
    model = network().to(gpu)
    mesh = init_device_mesh("cuda", (size,))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    steps(fully_shard(model, mesh=mesh), inputs.to(gpu))
    close(model.named_parameters(), wanted, "FSDP2")


def test_graph(rank: int, size: int, gpu) -> None:
    """A captured all_reduce, replayed."""
    tensor = torch.ones(4096, device=gpu)
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        dist.all_reduce(tensor)
    tensor.fill_(1)
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    same(tensor, torch.full((4096,), float(size**2)), "graph")


TESTS = [test_collectives, test_shapes, test_streams, test_training, test_graph]


def main(rank: int, size: int, folder: str, chosen) -> None:
    gpu = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(gpu)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size))
    store = dist.FileStore(os.path.join(folder, "store"), size)
    dist.init_process_group("tutti", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=60))
    for test in TESTS:
        if not chosen or test.__name__ in chosen:
            test(rank, size, gpu)
            torch.cuda.synchronize()
            dist.barrier()
            if rank == 0:
                print(f"ok {test.__name__}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("torch sees no GPU")
        sys.exit(77)
    ranks = int(os.environ.get("TORCH_RANKS", "2"))
    with tempfile.TemporaryDirectory() as made:
        mp.spawn(main, args=(ranks, made, sys.argv[1:]), nprocs=ranks)
