"""PyTorch's backend "tutti": import tutti.torch, then torch.distributed.init_process_group("tutti").

docs/pytorch.md says what works. Errors are tutti.errors' classes, which are torch's DistBackendError too."""

import atexit
import inspect
import time
import weakref

import torch.distributed as dist

from . import joining
from .compiling import leave_alone
from .devices import devices_here
from .futures import join_threads
from .group import NAME, Group, groups, with_backend
from .lanes import GRACE_S
from .work import milliseconds

_world = None  # a weak reference to the group of all ranks, of which later groups are made


def _lane(opts, rank: int, size: int, name: str, timeout_ms: int):
    world = _world() if _world is not None else None
    if size == 1:
        return joining.alone(name, timeout_ms)
    if opts.global_ranks_in_group and world is not None and not world.main.is_left:
        return joining.child(world.main, opts.global_ranks_in_group, name, timeout_ms)
    return joining.meet(opts.store, rank, size, name, timeout_ms)


def _create(opts, options=None) -> Group:
    """What register_backend's extended API calls on each rank of a new group."""
    global _world
    rank, size, name = opts.group_rank, opts.group_size, str(opts.group_id)
    timeout_ms = milliseconds(opts.timeout)
    group = Group(rank, size, name, _lane(opts, rank, size, name, timeout_ms), timeout_ms, opts.store)
    if not opts.global_ranks_in_group:
        _world = weakref.ref(group)
    return with_backend(group, devices_here())


@atexit.register
def _leave_all() -> None:
    """Before the interpreter ends, since a thread that is in torch then would end the process badly."""
    deadline = time.monotonic() + GRACE_S  # for all groups together, of which there may be many
    for group in list(groups):
        group.shutdown(deadline)
    join_threads()


def _register() -> None:
    named = {"extended_api": True}
    if "devices" in inspect.signature(dist.Backend.register_backend).parameters:
        named["devices"] = list(devices_here())
    dist.Backend.register_backend(NAME, _create, **named)


if not hasattr(dist.Backend, NAME.upper()):
    _register()
    leave_alone("tutti")
