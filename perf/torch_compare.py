#!/usr/bin/env python3
"""torch_compare.py: PyTorch's all_reduce and training steps over tutti.torch beside gloo, as a table.

The ranks are processes of this machine. Rounds of both backends take turns, and a row has the medians of the rounds;
a call's time is that of its slowest rank. Buffers are written before each call, outside of its time. Steps run without
communication, too: under no_sync, and with a hook that sends nothing (silent), which leaves what DDP itself takes."""

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import multiprocessing
from torch.nn.parallel import DistributedDataParallel

try:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
except ImportError:
    fully_shard = None  # an older torch, without FSDP2

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), folder) for folder in (".", "../bindings/python")]
import tutti.torch  # noqa: E402,F401 registers the backend
from harness import machine  # noqa: E402

ROUND_S = 0.12  # what one round of one backend takes, about


def slowest(seconds: float) -> float:
    """Of all ranks; also the barrier between rounds."""
    longest = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    return longest.item()


def timed(prepare, call, times: int) -> float:
    """Seconds of one call: the mean of times of them."""
    total = 0.0
    for _ in range(times):
        prepare()
        begun = time.perf_counter()
        call()
        total += time.perf_counter() - begun
    return slowest(total / times)


def compare(ways: dict, prepare, rounds: int) -> dict:
    """Medians, in seconds, of each way of doing it; one round of each after the other."""
    times, results = {}, {name: [] for name in ways}
    for name, call in ways.items():
        timed(prepare, call, 3)
        times[name] = max(2, min(2000, int(ROUND_S / timed(prepare, call, 3))))
    for _ in range(rounds):
        for name, call in ways.items():
            results[name].append(timed(prepare, call, times[name]))
    return {name: statistics.median(values) for name, values in results.items()}


def all_reduces(groups: dict, numbers: int):
    """(how one is prepared, how each backend does it)."""
    tensor = torch.ones(numbers)
    return lambda: tensor.fill_(1), {name: lambda group=group: dist.all_reduce(tensor, group=group) for name, group in groups.items()}


class Transformer(torch.nn.Module):
    """0.8 million parameters."""

    def __init__(self):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 4)

    def forward(self, inputs):
        return self.layers(inputs)


def mlp():
    """4.8 million parameters."""
    sizes = [1024, 1600, 1600, 384]
    layers = [torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]
    return torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])


MODELS = {"MLP of 4.8 M": (mlp, (8, 1024)), "transformer of 0.8 M": (Transformer, (2, 16, 128))}


def training_step(model, inputs, quiet):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        with quiet():
            model(inputs).pow(2).mean().backward()
        optimizer.step()

    return step


def send_nothing(_, bucket):
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def ddp_ways(make, shape, groups: dict) -> dict:
    ways, inputs = {}, torch.randn(shape)
    for name, group in groups.items():
        torch.manual_seed(1)
        model = DistributedDataParallel(make(), process_group=group)
        ways[name] = training_step(model, inputs, contextlib.nullcontext)
    ways["no_sync"] = training_step(model, inputs, model.no_sync)
    silent = DistributedDataParallel(make())
    silent.register_comm_hook(None, send_nothing)
    ways["silent"] = training_step(silent, inputs, contextlib.nullcontext)
    return ways


def fsdp_ways(make, shape, groups: dict) -> dict:
    ways, inputs = {}, torch.randn(shape)
    for name, group in groups.items():
        torch.manual_seed(1)
        model = make()
        mesh = DeviceMesh.from_group(group or dist.group.WORLD, "cpu")
        for layer in model.children():
            if any(True for _ in layer.parameters()):
                fully_shard(layer, mesh=mesh)
        ways[name] = training_step(fully_shard(model, mesh=mesh), inputs, contextlib.nullcontext)
    return ways


def rank_main(rank: int, size: int, folder: str, options) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(folder, "store"), size)
    dist.init_process_group("tutti", store=store, rank=rank, world_size=size, timeout=timedelta(minutes=5))
    groups = {"tutti": None, "gloo": dist.new_group(backend="gloo")}

    def row(what: str, prepare, ways: dict) -> None:
        medians = compare(ways, prepare, options.rounds)
        if rank == 0:
            show(what, size, medians, options)

    if "calls" in options.parts:
        for bytes_ in options.sizes:
            row(f"all_reduce {bytes_} B", *all_reduces(groups, max(1, bytes_ // 4)))
    for kind, ways_of in (("ddp", ddp_ways), ("fsdp", fsdp_ways)):
        if kind in options.parts and (kind == "ddp" or fully_shard):
            for name, (make, shape) in MODELS.items():
                shape = (options.samples or shape[0], *shape[1:])
                row(f"{kind.upper()} step, {name}", lambda: None, ways_of(make, shape, groups))
    dist.barrier()
    dist.destroy_process_group()


def show(what: str, size: int, medians: dict, options) -> None:
    ratio = medians["gloo"] / medians["tutti"]
    others = [f"{medians[way] * 1e6:.0f}" if way in medians else "" for way in ("silent", "no_sync")]
    times = [f"{medians[way] * 1e6:.1f}" for way in ("tutti", "gloo")]
    print("| " + " | ".join([what, str(size), str(options.busy), *times, f"{ratio:.2f}", *others]) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 64 << 10, 4 << 20, 64 << 20], help="bytes")
    parser.add_argument("--parts", nargs="+", default=["calls", "ddp", "fsdp"])
    parser.add_argument("--samples", type=int, help="of a rank and step, instead of 8 (MLP) and 2 (transformer)")
    parser.add_argument("--busy", type=int, default=0, help="busy processes beside the ranks")
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {os.cpu_count()} CPUs, medians of {options.rounds} rounds, us")
    print("| | ranks | busy | tutti | gloo | gloo / tutti | silent | no_sync |\n|---|---|---|---|---|---|---|---|", flush=True)
    with machine.busy(options.busy):
        for size in options.ranks:
            with tempfile.TemporaryDirectory() as folder:
                multiprocessing.spawn(rank_main, (size, folder, options), nprocs=size)


if __name__ == "__main__":
    main()
