"""torch.compile leaves this package alone.

A compiled model has its calls made from C++ (DDP's reducer), and each Python function that runs then would be compiled,
too. torch.compiler.disable() says so as well, but imports the compiler, which takes seconds."""

import sys
import types

import torch


def _skipper():
    """What makes the compiler pass over a code object; None: this torch has no compiler, or hides it."""
    frames = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if hasattr(frames, "skip_code"):  # earlier torch 2.x
        return frames.skip_code
    if not all(hasattr(frames, name) for name in ("set_code_exec_strategy", "_FrameAction", "_FrameExecStrategy")):
        return None
    skip = frames._FrameAction.SKIP
    strategy = frames._FrameExecStrategy(skip, skip)
    return lambda code: frames.set_code_exec_strategy(code, strategy)


def _skip(code, skip) -> None:
    skip(code)
    for constant in code.co_consts:  # functions inside of functions
        if isinstance(constant, types.CodeType):
            _skip(constant, skip)


def _functions(owner, module: str):
    for member in list(vars(owner).values()):
        member = getattr(member, "fget", None) or getattr(member, "__func__", member)
        if isinstance(member, type) and member.__module__ == module and member is not owner:
            yield from _functions(member, module)
        elif isinstance(member, types.FunctionType) and member.__module__ == module:
            yield member


def leave_alone(package: str) -> None:
    """All functions of the package's modules that are imported by now."""
    skip = _skipper()
    if skip is None:
        return
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(package + "."):
            for function in _functions(module, name):
                _skip(function.__code__, skip)
