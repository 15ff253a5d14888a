"""Which kinds of devices a group serves: those in its backend string that the machine has.

torch passes that string to no backend, but records it with the group as soon as this is made: dist.get_backend_config()
returns it, as in "cpu:tutti,cuda:tutti". So a string that tutti cannot serve is refused by the group's first call."""

import os

import torch
import torch.distributed as dist

from .failures import unsupported

DEVICES = ("cpu", "cuda")
NAME = "tutti"
_NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"


def devices_here() -> tuple:
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


def _backend_string(group) -> str:
    """Empty where torch has none: before it has registered the group, and in torch 1.13."""
    if not hasattr(dist, "get_backend_config"):
        return ""
    try:
        return dist.get_backend_config(group).lower()
    except (AssertionError, TypeError, ValueError):  # what versions of torch raise for a group that is not registered
        return ""


def devices_of(group, here: tuple):
    """Those of here that group serves, or None while torch has not registered it."""
    text = _backend_string(group)
    if ":" not in text:
        return None
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
