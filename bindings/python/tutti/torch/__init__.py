"""PyTorch's backend "tutti": import tutti.torch, then torch.distributed.init_process_group("tutti").

docs/pytorch.md says what works. Errors are tutti.errors' classes, which are torch's DistBackendError too."""

import atexit
import inspect
import os
import sys
import time
import weakref

import torch
import torch.distributed as dist

from . import joining
from .compiling import leave_alone
from .failures import unsupported
from .futures import join_threads
from .group import NAME, Group, groups, with_backend
from .lanes import GRACE_S
from .work import milliseconds

DEVICES = ("cpu", "cuda")
_NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"

_world = None  # a weak reference to the group of all ranks, of which later groups are made


def _devices_here() -> tuple:
    """Those of this machine. Does not initialize CUDA, which children that the process forks later could not use."""
    before = os.environ.get(_NVML_CHECK)
    os.environ[_NVML_CHECK] = "1"
    try:
        has_gpu = torch.cuda.is_initialized() or torch.cuda.is_available()
    finally:
        if before is None:
            del os.environ[_NVML_CHECK]
        else:
            os.environ[_NVML_CHECK] = before
    return DEVICES if has_gpu else ("cpu",)


def _devices() -> tuple:
    """Those in the backend string, or all of this machine if it names none. torch does not pass that string to a backend,
    so it is read from the local variables of the torch function that calls _create."""
    here = _devices_here()
    caller = sys._getframe(2).f_locals
    text = str(caller.get("backend", NAME)).lower()
    if ":" not in text:
        return here
    pairs = [part.split(":") for part in text.split(",")]
    others = sorted({backend for _, backend in pairs} - {NAME})
    if others:
        raise unsupported(
            f"tutti: backend '{text}': tutti cannot share a group with {' and '.join(others)}: name tutti for all its "
            "devices, as in 'cpu:tutti,cuda:tutti', or use two groups"
        )
    named = tuple(kind for kind, _ in pairs)
    for kind in named:
        if kind not in DEVICES:
            raise unsupported(f"tutti: backend '{text}': tutti takes tensors of {' and '.join(DEVICES)}, not of {kind}")
    if not set(named) & set(here):
        raise unsupported(f"tutti: backend '{text}': this machine has no CUDA device, or torch does not see it")
    return tuple(kind for kind in here if kind in named)


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
    devices = _devices()
    rank, size, name = opts.group_rank, opts.group_size, str(opts.group_id)
    timeout_ms = milliseconds(opts.timeout)
    group = Group(rank, size, name, _lane(opts, rank, size, name, timeout_ms), timeout_ms, opts.store)
    if not opts.global_ranks_in_group:
        _world = weakref.ref(group)
    return with_backend(group, devices)


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
        named["devices"] = list(_devices_here())
    dist.Backend.register_backend(NAME, _create, **named)


if not hasattr(dist.Backend, NAME.upper()):
    _register()
    leave_alone("tutti")
