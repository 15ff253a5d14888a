"""DistributedDataParallel over tutti.torch: the bits of gloo on 2 ranks. Callbacks that issue calls, many calls at once."""

import copy

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch_ranks import run, run_all, start

STEPS = 4


class Branches(torch.nn.Module):
    """The second branch takes part in every other step only."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = torch.nn.Linear(24, 40), torch.nn.Linear(24, 40), torch.nn.Linear(40, 8)

    def forward(self, inputs, both: bool):
        hidden = self.first(inputs)
        return self.last(torch.relu(hidden + self.second(inputs) if both else hidden))


VARIANTS = {
    "plain": {},
    "bucket views": {"gradient_as_bucket_view": True},
    "static graph": {"static_graph": True},
    "unused parameters": {"find_unused_parameters": True},
    "hook in C++": {"built_in": dist.BuiltinCommHookType.ALLREDUCE},
    "fp16 hook": {"hook": default_hooks.fp16_compress_hook},
}
if torch.__version__[:2] != "1.":  # there it needs CUDA
    VARIANTS["bf16 hook"] = {"hook": default_hooks.bf16_compress_hook}


def train(model, group, rank: int, variant: dict):
    """Parameters after some steps, as one tensor."""
    variant = dict(variant)
    hook, built_in = variant.pop("hook", None), variant.pop("built_in", None)
    model = DistributedDataParallel(copy.deepcopy(model), process_group=group, bucket_cap_mb=0.002, **variant)
    if hook:
        model.register_comm_hook(group, hook)
    if built_in:
        model._register_builtin_comm_hook(built_in)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(1 + rank)
    for step in range(STEPS):
        optimizer.zero_grad()
        both = step % 2 == 0 or "find_unused_parameters" not in variant
        model(torch.randn(16, 24, generator=generator), both).pow(2).mean().backward()
        optimizer.step()
    return torch.cat([p.detach().reshape(-1) for p in model.module.parameters()])


def has_bf16(group) -> bool:
    """Gloo of torch 2.1 has not."""
    try:
        dist.all_reduce(torch.ones(1, dtype=torch.bfloat16), group=group)
    except RuntimeError:
        return False
    return True


def _beside_gloo(rank: int, size: int, folder: str) -> None:
    start(rank, size, folder)
    gloo = dist.new_group(backend="gloo")
    torch.manual_seed(7)
    model = Branches()
    for name, variant in VARIANTS.items():
        if name == "bf16 hook" and not has_bf16(gloo):
            continue
        ours, theirs = (train(model, group, rank, variant) for group in (None, gloo))
        assert torch.equal(ours, theirs), f"{name}: up to {(ours - theirs).abs().max()} from gloo's"


def test_beside_gloo() -> None:
    run(2, _beside_gloo)


def _power_sgd(rank: int, size: int, folder: str) -> None:
    """Its hooks issue two calls for each bucket from callbacks, and wait for them there."""
    start(rank, size, folder)
    torch.manual_seed(7)
    model = DistributedDataParallel(Branches(), bucket_cap_mb=0.002)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    generator = torch.Generator().manual_seed(1 + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.randn(16, 24, generator=generator), True).pow(2).mean().backward()
        optimizer.step()
    flat = torch.cat([p.detach().reshape(-1) for p in model.module.parameters()])
    others = [torch.empty_like(flat) for _ in range(size)]
    dist.all_gather(others, flat)
    assert all(torch.equal(flat, other) for other in others), "ranks have different parameters"


def test_power_sgd() -> None:
    run(3, _power_sgd)


def _callbacks(rank: int, size: int, folder: str) -> None:
    """Rank 0 attaches callbacks when works are over, the others before; all issue the same calls in them."""
    start(rank, size, folder)

    def reduce_in_callback(number: int, nested: bool):
        def callback(future):
            value = torch.full((1,), float(number)) + future.value()[0]
            if not nested:
                return dist.all_reduce(value, async_op=True).get_future().wait()[0]
            inner = dist.all_reduce(value, async_op=True).get_future()
            return inner.then(reduce_in_callback(number + 100, False)).wait()

        return callback

    chains = []
    for number in range(20):
        work = dist.all_reduce(torch.ones(1), async_op=True)
        if rank == 0:
            work.wait()
        future = work.get_future()
        if rank == 0 and number % 2:
            future.wait()
        chain = future.then(reduce_in_callback(number, number % 3 == 0))
        if rank == 0 and number % 5 == 0:
            chain.wait()
        chains.append(chain.then(lambda f: f.value() + 1))
        dist.all_reduce(torch.ones(1))
    for number, chain in enumerate(chains):
        first = size * (number + size)
        wanted = 1 + (size * (number + 100 + first) if number % 3 == 0 else first)
        assert chain.wait().item() == wanted, (number, chain.value(), wanted)


def _waits_for_later(rank: int, size: int, folder: str) -> None:
    """A callback waits for futures that have their turn after it, also for what follows them."""
    start(rank, size, folder)
    later = []

    def first(future):
        return future.value()[0] + sum(f.wait() for f in later)

    future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
    for number in range(3):
        work = dist.all_reduce(torch.full((1,), float(number)), async_op=True)
        later.append(work.get_future().then(lambda f: f.value()[0] * 10))
    last = future.then(first)
    assert last.wait().item() == size + 30 * size
    results = torch.futures.wait_all([last, *later])
    assert [r.item() for r in results] == [31 * size, 0, 10 * size, 20 * size]


def _two_groups(rank: int, size: int, folder: str) -> None:
    """Callbacks of two groups make their lanes at once, in any order, while the program issues and makes groups."""
    start(rank, size, folder)
    groups = [dist.new_group(list(range(size))) for _ in range(4)]
    chains = []
    for group in groups if rank % 2 else groups[::-1]:
        future = dist.all_reduce(torch.ones(1), group=group, async_op=True).get_future()
        chains.append(future.then(lambda f: [dist.all_reduce(f.value()[0], group=g) for g in groups] and f.value()[0]))
    for _ in range(50):
        dist.all_reduce(torch.ones(1))
    made = dist.new_group(list(range(size)))
    dist.all_reduce(torch.ones(1), group=made)
    for chain in chains:
        assert chain.wait().item() == size**5


def test_two_groups() -> None:
    run(3, _two_groups)


def test_callbacks() -> None:
    run(2, _callbacks)
    run(3, _callbacks)
    run(2, _waits_for_later)


def _many(rank: int, size: int, folder: str) -> None:
    """Receives before the first send, more than the library has room for; and works that nobody waits for."""
    start(rank, size, folder)
    peer, count = 1 - rank, 1500
    outputs = [torch.zeros(2) for _ in range(count)]
    receives = [dist.irecv(t, peer) for t in outputs]
    sends = [dist.isend(torch.tensor([rank, i], dtype=torch.float32), peer) for i in range(count)]
    for work in receives + sends:
        work.wait()
    assert [t.tolist() for t in outputs] == [[peer, i] for i in range(count)]
    tensors = [torch.ones(1) for _ in range(300)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    works[-1].wait()
    del works
    dist.barrier()
    assert all(t.item() == size for t in tensors)
    output = torch.zeros(1)
    if rank == 0:
        assert dist.recv(output) == 1 and output.item() == 5
    else:
        dist.send(torch.tensor([5.0]), 0)
    dist.barrier()


class _Shrinking(dict):
    """The oldest work ends between the two steps of a look at it."""

    def __iter__(self):
        found = super().__iter__()
        next(super().__iter__()).wait()
        return found


def _ends_meanwhile(rank: int, size: int, folder: str) -> None:
    start(rank, size, folder)
    lane = dist.distributed_c10d._get_default_group().main
    lane.open = _Shrinking()
    tensors = [torch.ones(1) for _ in range(30)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    lane.open = dict(lane.open.items())
    for work, tensor in zip(works, tensors):
        work.wait()
        assert tensor.item() == size


def test_many() -> None:
    run(2, _many)
    run(2, _ends_meanwhile)


if __name__ == "__main__":
    run_all([test_beside_gloo, test_power_sgd, test_callbacks, test_two_groups, test_many])
