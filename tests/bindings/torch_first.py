"""torch_first.py [BACKEND]: what a program does first, under torchrun or tuttirun. Every rank says "rank R of N"."""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401


def main(backend: str) -> None:
    dist.init_process_group(backend, timeout=timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()
    assert (rank, size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    tensor = torch.full((5,), float(rank))
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    assert work.is_completed() and tensor.tolist() == [size * (size - 1) / 2] * 5
    if hasattr(dist, "init_device_mesh"):
        mesh = dist.init_device_mesh("cpu", (size,))
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=mesh.get_group())
        assert tensor.item() == size and mesh.get_local_rank() == rank
    dist.barrier()
    print(f"{dist.get_backend()}: rank {rank} of {size}", flush=True)
    dist.destroy_process_group()


main(sys.argv[1] if len(sys.argv) > 1 else "tutti")
