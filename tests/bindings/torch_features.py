"""What newer torch builds on a backend: FSDP, HSDP, DTensor, functional collectives, checkpoints, coalescing, DETAIL.

By hand and from script/soak, with torch >= 2.4; where gloo can do it, its result is the measure."""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch_ranks import raised, run, run_all, start

from tutti import errors

STEPS = 4


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(24, 48), torch.nn.ReLU(), torch.nn.Linear(48, 8))


def steps(model, rank: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(16, 24, generator=generator)).pow(2).mean().backward()
        optimizer.step()


def whole(parameters):
    parts = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in (q.detach() for q in parameters)]
    return torch.cat([p.reshape(-1) for p in parts])


def sharded(mesh, rank: int, **named):
    from torch.distributed.fsdp import fully_shard

    model = network()
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh, **named)
    fully_shard(model, mesh=mesh, **named)
    steps(model, rank)
    return model


def _fsdp2(rank: int, size: int, folder: str) -> None:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import MixedPrecisionPolicy

    start(rank, size, folder)
    gloo = dist.new_group(backend="gloo")
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for named in ({}, {"reshard_after_forward": False}, {"mp_policy": policy}):
        ours, theirs = (
            whole(sharded(DeviceMesh.from_group(group, "cpu"), rank, **named).parameters())
            for group in (dist.group.WORLD, gloo)
        )
        assert torch.equal(ours, theirs), f"{named}: up to {(ours - theirs).abs().max()} from gloo's"


def test_fsdp2() -> None:
    run(2, _fsdp2)


def _hsdp(rank: int, size: int, folder: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.nn.parallel import DistributedDataParallel

    start(rank, size, folder)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    ours = whole(sharded(mesh, rank).parameters())
    reference = DistributedDataParallel(network())
    steps(reference, rank)
    wanted = whole(reference.parameters())
    assert torch.allclose(ours, wanted, atol=1e-6), f"up to {(ours - wanted).abs().max()} from DDP's"


def test_hsdp() -> None:
    run(4, _hsdp)


def _fsdp1(rank: int, size: int, folder: str) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    start(rank, size, folder)
    gloo = dist.new_group(backend="gloo")
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD):
        results = []
        for group in (dist.group.WORLD, gloo):
            model = FullyShardedDataParallel(
                network(), group, sharding_strategy=strategy, use_orig_params=True, device_id=torch.device("cpu")
            )
            steps(model, rank)
            with FullyShardedDataParallel.summon_full_params(model):
                results.append(whole(model.parameters()))
        assert torch.equal(*results), f"{strategy}: up to {(results[0] - results[1]).abs().max()} from gloo's"


def test_fsdp1() -> None:
    run(2, _fsdp1)


def _dtensor(rank: int, size: int, folder: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    start(rank, size, folder)
    mesh = init_device_mesh("cpu", (size,))
    whole_ = torch.arange(48.0).view(6, 8)
    rows = distribute_tensor(whole_, mesh, [Shard(0)])
    assert torch.equal(rows.redistribute(mesh, [Shard(1)]).full_tensor(), whole_)
    assert torch.equal(rows.redistribute(mesh, [Replicate()]).to_local(), whole_)
    assert torch.equal((rows @ rows.t()).full_tensor(), whole_ @ whole_.t())
    product = distribute_tensor(whole_.t(), mesh, [Shard(1)]) @ rows
    assert isinstance(product.placements[0], Partial) and torch.equal(product.full_tensor(), whole_.t() @ whole_)
    model, inputs = network(), torch.randn(4, 24, generator=torch.Generator().manual_seed(5))
    wanted = model(inputs)
    parallel = parallelize_module(network(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    assert torch.allclose(parallel(inputs), wanted, atol=1e-6)


def test_dtensor() -> None:
    run(2, _dtensor)
    run(3, _dtensor)


def _functional(rank: int, size: int, folder: str) -> None:
    import torch.distributed._functional_collectives as funcol

    start(rank, size, folder)
    group, own = dist.group.WORLD, torch.full((4,), float(rank + 1))
    total = size * (size + 1) / 2
    assert torch.equal(funcol.all_reduce(own, "sum", group).clone(), torch.full((4,), total))
    for tensor in funcol.all_reduce_coalesced([own, own * 2], "avg", group):
        assert tensor.clone()[0].item() in (total / size, 2 * total / size)
    gathered = funcol.all_gather_tensor(own, 0, group)
    assert gathered.clone().tolist() == [r + 1.0 for r in range(size) for _ in range(4)]
    parts = funcol.reduce_scatter_tensor(torch.arange(float(2 * size)) * (rank + 1), "sum", 0, group)
    assert parts.clone().tolist() == [total * (2 * rank), total * (2 * rank + 1)]
    swapped = funcol.all_to_all_single(torch.arange(float(size)) + 10 * rank, None, None, group)
    assert swapped.clone().tolist() == [10.0 * r + rank for r in range(size)]
    assert funcol.broadcast(own, 1, group).clone()[0].item() == 2


def _coalesced(rank: int, size: int, folder: str) -> None:
    start(rank, size, folder)
    tensors = [torch.full((3,), float(rank + i)) for i in range(4)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for i, tensor in enumerate(tensors):
        assert tensor.tolist() == [float(sum(r + i for r in range(size)))] * 3
    outputs = [torch.zeros(2) for _ in range(2)]
    peers = [(rank + 1) % size, (rank - 1) % size]
    operations = [dist.P2POp(dist.irecv, outputs[i], peers[i], tag=i) for i in range(2)]
    operations += [dist.P2POp(dist.isend, torch.full((2,), float(rank)), peers[1 - i], tag=i) for i in range(2)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert [t[0].item() for t in outputs] == peers
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(size)]
    listed = [f"from {rank}", rank]
    dist.broadcast_object_list(listed, src=1)
    assert listed == ["from 1", 1]
    scattered = [None]
    dist.scatter_object_list(scattered, [f"for {r}" for r in range(size)] if rank == 0 else None)
    assert scattered == [f"for {rank}"]
    dist.monitored_barrier(timeout=timedelta(seconds=60))


def test_calls() -> None:
    for function in (_functional, _coalesced):
        run(2, function)
        run(3, function)


def _monitored(rank: int, size: int, folder: str) -> None:
    start(rank, size, folder)
    store = dist.FileStore(os.path.join(folder, "test"), size)
    if rank == 0:
        raised(errors.TimeoutError, lambda: dist.monitored_barrier(timeout=timedelta(seconds=1)), "ranks 1, 2")
        store.set("seen", "1")
    else:
        store.wait(["seen"])


def test_monitored_barrier() -> None:
    run(3, _monitored)


def _checkpoint(rank: int, size: int, folder: str) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh

    start(rank, size, folder)
    mesh = init_device_mesh("cpu", (size,))
    model = sharded(mesh, rank)
    path, wanted = os.path.join(folder, "saved"), whole(model.parameters())
    dcp.save({"model": model.state_dict()}, checkpoint_id=path)
    other = sharded(mesh, rank + 10)
    assert not torch.equal(whole(other.parameters()), wanted)
    state = {"model": other.state_dict()}
    dcp.load(state, checkpoint_id=path)
    other.load_state_dict(state["model"])
    assert torch.equal(whole(other.parameters()), wanted)


def test_checkpoint() -> None:
    run(2, _checkpoint)


def _detail(rank: int, size: int, folder: str) -> None:
    from torch.nn.parallel import DistributedDataParallel

    start(rank, size, folder)
    model = DistributedDataParallel(network())
    steps(model, rank)
    group = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(3), group=group)
    raised(errors.MismatchError, lambda: dist.all_reduce(torch.ones(3 + rank), group=group), "rank 0", "rank 1")


def test_detail() -> None:
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        run(2, _detail)
    finally:
        dist.set_debug_level(dist.DebugLevel.OFF)


if __name__ == "__main__":
    if not hasattr(torch, "distributed") or torch.__version__.startswith(("1.", "2.0", "2.1.", "2.2", "2.3")):
        print(f"torch {torch.__version__} is too old: 2.4 is needed")
        sys.exit(77)
    run_all(
        [
            test_fsdp2,
            test_hsdp,
            test_fsdp1,
            test_dtensor,
            test_calls,
            test_monitored_barrier,
            test_checkpoint,
            test_detail,
        ]
    )
