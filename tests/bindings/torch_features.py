"""What newer torch builds on a backend: FSDP, HSDP, DTensor, functional collectives, checkpoints, coalescing, DETAIL; and
launchers.

By hand and from script/soak; where gloo can do it, its result is the measure. What this torch has not is left out."""

import importlib
import inspect
import os
import subprocess
import sys
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
from torch_ranks import raised, run, run_all, start

from tutti import errors
from tutti.torch.group import Delegate

STEPS = 4
LAUNCH_S = 300  # many times what a launched program takes, beside busy processes too


def first_with(name: str, *modules: str):
    """Of modules, the first that has name; None: this torch is too old."""
    for module in modules:
        try:
            found = importlib.import_module(module)
        except (ImportError, ValueError):  # ValueError: torch 1.13 has dataclasses that Python 3.11 refuses
            continue
        if hasattr(found, name):
            return found
    return None


fsdp2 = first_with("fully_shard", "torch.distributed.fsdp")  # what torch had elsewhere needs CUDA
dtensor = first_with("Partial", "torch.distributed.tensor", "torch.distributed._tensor")
fsdp1 = first_with("FullyShardedDataParallel", "torch.distributed.fsdp")
try:
    torch.cpu.Stream(priority=-1)
except (AttributeError, TypeError):  # FSDP of such a torch needs CUDA
    fsdp1 = None
functional = first_with("broadcast", "torch.distributed._functional_collectives")


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
    model = network()
    for layer in (model[0], model[2]):
        fsdp2.fully_shard(layer, mesh=mesh, **named)
    fsdp2.fully_shard(model, mesh=mesh, **named)
    steps(model, rank)
    return model


def replicated(rank: int, group=None):
    model = torch.nn.parallel.DistributedDataParallel(network(), process_group=group)
    steps(model, rank)
    return model


def averages(group) -> bool:
    """Of torch 2.7 gloo's reduce_scatter_tensor gives the sum for AVG, which FSDP2 asks for."""
    output = torch.zeros(1)
    try:
        dist.reduce_scatter_tensor(output, torch.ones(group.size()), op=dist.ReduceOp.AVG, group=group)
    except RuntimeError:
        return False
    return output.item() == 1


def _fsdp2(rank: int, size: int, folder: str) -> None:
    from torch.distributed.device_mesh import DeviceMesh

    start(rank, size, folder)
    gloo = dist.new_group(backend="gloo")
    can_average = averages(gloo)
    policy = fsdp2.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for named in ({}, {"reshard_after_forward": False}, {"mp_policy": policy}):
        ours = whole(sharded(DeviceMesh.from_group(dist.group.WORLD, "cpu"), rank, **named).parameters())
        if can_average:
            theirs = whole(sharded(DeviceMesh.from_group(gloo, "cpu"), rank, **named).parameters())
        elif "mp_policy" in named:
            continue
        else:
            theirs = whole(replicated(rank, gloo).parameters())
        assert torch.equal(ours, theirs), f"{named}: up to {(ours - theirs).abs().max()} from gloo's"


def test_fsdp2() -> None:
    run(2, _fsdp2)


def _hsdp(rank: int, size: int, folder: str) -> bool:
    from torch.distributed.device_mesh import init_device_mesh

    start(rank, size, folder)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    try:
        ours = whole(sharded(mesh, rank).parameters())
    except AssertionError as error:
        if traceback.extract_tb(error.__traceback__)[-1].name != "post_backward":
            raise
        return False  # of torch 2.7 FSDP2 asserts an event, which torch.cpu has not
    wanted = whole(replicated(rank).parameters())
    assert torch.allclose(ours, wanted, atol=1e-6), f"up to {(ours - wanted).abs().max()} from DDP's"
    return True


def test_hsdp() -> None:
    if not all(run(4, _hsdp)):
        print(f"left out with torch {torch.__version__}: HSDP, which this torch has on GPUs alone")


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
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    start(rank, size, folder)
    distribute_tensor, Replicate, Shard = dtensor.distribute_tensor, dtensor.Replicate, dtensor.Shard
    mesh = init_device_mesh("cpu", (size,))
    whole_ = torch.arange(48.0).view(6, 8)
    rows = distribute_tensor(whole_, mesh, [Shard(0)])
    assert torch.equal(rows.redistribute(mesh, [Shard(1)]).full_tensor(), whole_)
    assert torch.equal(rows.redistribute(mesh, [Replicate()]).to_local(), whole_)
    assert torch.equal((rows @ rows.t()).full_tensor(), whole_ @ whole_.t())
    product = distribute_tensor(whole_.t(), mesh, [Shard(1)]) @ rows
    assert isinstance(product.placements[0], dtensor.Partial) and torch.equal(product.full_tensor(), whole_.t() @ whole_)
    model, inputs = network(), torch.randn(4, 24, generator=torch.Generator().manual_seed(5))
    wanted = model(inputs)
    parallel = parallelize_module(network(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    assert torch.allclose(parallel(inputs), wanted, atol=1e-6)


def test_dtensor() -> None:
    run(2, _dtensor)
    run(3, _dtensor)


def _functional(rank: int, size: int, folder: str) -> None:
    start(rank, size, folder)
    funcol, group, own = functional, dist.group.WORLD, torch.full((4,), float(rank + 1))
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


def monitored_barrier(timeout_s: int) -> None:
    """Torch's own where it does not refuse all backends but gloo."""
    timeout = timedelta(seconds=timeout_s)
    try:
        dist.monitored_barrier(timeout=timeout)
    except (ValueError, RuntimeError) as error:
        if "only implemented for GLOO" not in str(error):
            raise
        dist.distributed_c10d._get_default_group().monitored_barrier(timeout)


def _messages(rank: int, size: int, folder: str) -> None:
    start(rank, size, folder)
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
    monitored_barrier(60)


def test_calls() -> None:
    run(2, _messages)
    run(3, _messages)


def test_coalesced() -> None:
    run(2, _coalesced)
    run(3, _coalesced)


def test_functional() -> None:
    run(2, _functional)
    run(3, _functional)


def _monitored(rank: int, size: int, folder: str) -> None:
    start(rank, size, folder)
    store = dist.FileStore(os.path.join(folder, "test"), size)
    if rank == 0:
        raised(errors.TimeoutError, lambda: monitored_barrier(1), "ranks 1, 2")
        store.set("seen", "1")
    else:
        store.wait(["seen"])


def test_monitored_barrier() -> None:
    run(3, _monitored)


def _checkpoint(rank: int, size: int, folder: str) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh

    start(rank, size, folder)
    mesh, path = init_device_mesh("cpu", (size,)), os.path.join(folder, "saved")
    shards = [dtensor.Shard(0)]
    rows = {"rows": dtensor.distribute_tensor(torch.arange(30.0).view(5, 6), mesh, shards)}
    dcp.save(rows, checkpoint_id=path + "-rows")
    rows["rows"] = dtensor.distribute_tensor(torch.zeros(5, 6), mesh, shards)
    dcp.load(rows, checkpoint_id=path + "-rows")
    assert torch.equal(rows["rows"].full_tensor(), torch.arange(30.0).view(5, 6))
    if fsdp2 is not None:
        _checkpoint_of_model(mesh, rank, path)


def _checkpoint_of_model(mesh, rank: int, path: str) -> None:
    import torch.distributed.checkpoint as dcp

    model = sharded(mesh, rank)
    wanted = whole(model.parameters())
    dcp.save({"model": model.state_dict()}, checkpoint_id=path)
    other = sharded(mesh, rank + 10)
    assert not torch.equal(whole(other.parameters()), wanted)
    state = {"model": other.state_dict()}
    dcp.load(state, checkpoint_id=path)
    other.load_state_dict(state["model"])
    assert torch.equal(whole(other.parameters()), wanted)


def test_checkpoint() -> None:
    run(2, _checkpoint)


def _states(rank: int, size: int, folder: str) -> None:
    """What asks a group for its devices: states of optimizers, of rank 0's alone, and saving meanwhile."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import state_dict as states

    start(rank, size, folder)
    wrapped = fsdp1.FullyShardedDataParallel(network(), use_orig_params=True, device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05, momentum=0.9)
    wrapped(torch.ones(2, 24)).sum().backward()
    optimizer.step()
    of_optimizer = fsdp1.FullyShardedDataParallel.optim_state_dict(wrapped, optimizer)
    assert any("momentum_buffer" in state for state in of_optimizer["state"].values())
    path = os.path.join(folder, "meanwhile")
    dcp.async_save({"a": torch.ones(4)}, checkpoint_id=path).result()
    loaded = {"a": torch.zeros(4)}
    dcp.load(loaded, checkpoint_id=path)
    assert torch.equal(loaded["a"], torch.ones(4))
    if fsdp2 is None:
        return
    model = network()
    fsdp2.fully_shard(model)
    given = {key: value + 1 for key, value in network().state_dict().items()}
    wanted = torch.cat([value.reshape(-1) for value in given.values()])  # given's values become shards
    options = states.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    states.set_model_state_dict(model, given if rank == 0 else {}, options=options)
    assert torch.equal(whole(model.parameters()), wanted)


def test_states() -> None:
    run(2, _states)


def _detail(rank: int, size: int, folder: str) -> None:
    start(rank, size, folder)
    replicated(rank)
    group = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(3), group=group)
    raised(errors.MismatchError, lambda: dist.all_reduce(torch.ones(3 + rank), group=group), "rank 0", "rank 1")


def test_detail() -> None:
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        run(2, _detail)
    finally:
        dist.set_debug_level(dist.DebugLevel.OFF)


def _supports(rank: int, size: int, folder: str) -> None:
    """Torch's questions have an answer, each of them."""
    start(rank, size, folder)
    group = dist.distributed_c10d._get_default_group()
    for owner in (group, group._get_backend(torch.device("cpu"))):
        for name in dir(owner):
            if "supports_" in name and not callable(getattr(owner, name)):
                assert getattr(owner, name) is (name == "supports_splitting" and Delegate is not None), name


def test_supports() -> None:
    run(1, _supports)


def _compiled(rank: int, size: int, folder: str) -> None:
    """C++ calls the group while the compiler looks at each Python function that runs."""
    start(rank, size, folder)
    model = torch.nn.parallel.DistributedDataParallel(network())
    wanted = [p.detach().clone() for p in model.parameters()]
    steps(torch.compile(model, backend="aot_eager"), rank)
    assert not torch.equal(whole(model.parameters()), whole(wanted))

    def function(tensor):
        work = dist.all_reduce(tensor, async_op=True)
        other = tensor.new_ones(3)
        work.wait()
        return tensor * 2 + other[0]

    result = torch.compile(function, backend="aot_eager")(torch.ones(4))
    assert result.tolist() == [2.0 * size + 1] * 4


def test_compiled() -> None:
    run(2, _compiled)


def launched(launcher, *arguments, **environment) -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_first.py")
    command = [*launcher, program, *arguments]
    ended = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LAUNCH_S,
    )
    wanted = all(f"rank {rank} of 2" in ended.stdout for rank in range(2))
    assert ended.returncode == 0 and wanted, f"{command} ended with {ended.returncode}: {ended.stdout}"


def test_torchrun() -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    launched(torchrun, "tutti")
    launched(torchrun, "tutti", TORCH_DISTRIBUTED_DEBUG="DETAIL")
    launched(torchrun, "cpu:tutti,cuda:tutti")


def test_tuttirun() -> None:
    folder = os.path.dirname(os.environ["LIBTUTTI"])
    launched([os.path.join(folder, "launch", "tuttirun"), "-n", "2", sys.executable])


TESTS = {  # and what a test needs of torch
    test_torchrun: not torch.__version__.startswith("1."),  # whose torchrun does not run with Python 3.11
    test_tuttirun: os.path.exists(os.path.join(os.path.dirname(os.environ.get("LIBTUTTI", "")), "launch", "tuttirun")),
    test_fsdp2: fsdp2,
    test_hsdp: fsdp2,
    test_fsdp1: fsdp1,
    test_dtensor: dtensor,
    test_calls: True,
    test_supports: True,
    test_compiled: hasattr(torch, "compile"),
    test_coalesced: "async_ops" in inspect.signature(getattr(dist, "_coalescing_manager", print)).parameters,
    test_functional: functional,
    test_monitored_barrier: True,
    test_checkpoint: dtensor,
    test_states: fsdp1 and first_with("async_save", "torch.distributed.checkpoint"),
    test_detail: True,
}


if __name__ == "__main__":
    for test, needed in TESTS.items():
        if not needed:
            print(f"left out with torch {torch.__version__}: {test.__name__}")
    run_all([test for test, needed in TESTS.items() if needed])
