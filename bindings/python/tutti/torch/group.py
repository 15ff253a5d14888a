"""The process group: what torch.distributed gets when it asks for backend "tutti".

It is a ProcessGroup itself, so that torch's Python functions call its methods directly, and C++ (DDP's reducer,
functional collectives) through torch's trampolines. Since torch 2.14 a group also answers for its Backend; Delegate
is that."""

import weakref
from datetime import timedelta
from typing import Optional

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist

from .._library import lib
from . import joining
from .collectives import Collectives
from .devices import NAME, devices_of
from .failures import refused, unsupported
from .futures import here
from .work import milliseconds

groups = weakref.WeakSet()


class Group(Collectives, dist.ProcessGroup):
    device = None  # of CUDA, the last that it had tensors on
    served = None  # names of the kinds of devices that it serves, once they are known
    offered = ()  # those that it serves if torch has recorded no others

    def __init__(self, rank: int, size: int, name: str, lane, timeout_ms: int, store=None):
        dist.ProcessGroup.__init__(self, rank, size)
        self.own_rank, self.ranks = rank, size
        self.tutti_name, self.torch_name = name, name
        self.timeout_ms = timeout_ms
        self.main = lane
        self.store = store
        self._lanes = {}  # by the path of the completer whose callbacks use it
        groups.add(self)

    # ---- issuing

    def submit(self, work, opts=None):
        self._check_device(work)
        work.timeout_ms = work.timeout_ms or milliseconds(getattr(opts, "timeout", None)) or self.timeout_ms
        if work.device is not None:
            self.device = work.device
            if not getattr(opts, "asyncOp", True):
                work.enqueue()
        self.lane().issue(work)
        return work

    def _check_device(self, work) -> None:
        if self.served is None:
            self.served = self.devices
        kind = "cpu" if work.device is None else "cuda"
        if kind not in self.served and work.results:
            served = " and ".join(self.served)
            raise refused(f"tutti: this call has {kind} tensors, but group {self.torch_name} serves only {served}")

    @property
    def devices(self) -> tuple:
        """Raises UnsupportedError if the group's backend string has others than tutti's."""
        if self.served is None:
            self.served = devices_of(self, self.offered)
        return self.offered if self.served is None else self.served

    def lane(self):
        completer = here.completer
        return self.main if completer is None else self._lane_of(completer)

    def _lane_of(self, completer):
        """Only the completer's own thread comes here with it."""
        lane = self._lanes.get(completer.path)
        if lane is None:
            lane = self._lanes[completer.path] = self._make_lane(f"{self.tutti_name}<{completer.path}")
        return lane

    def _make_lane(self, name: str):
        if self.ranks == 1:
            return joining.alone(name, self.timeout_ms)
        return joining.child(self.main, range(self.ranks), name, self.timeout_ms)

    # ---- what torch asks a group for

    def rank(self) -> int:
        return self.own_rank

    def size(self) -> int:
        return self.ranks

    def name(self) -> str:
        return NAME

    getRank, getSize, getBackendName, _get_backend_name = rank, size, name, name

    @property
    def group_name(self) -> str:
        return self.torch_name

    def getGroupName(self) -> str:
        return self.torch_name

    def setGroupName(self, name: str) -> None:
        self.torch_name = name

    _set_group_name = setGroupName

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        self.main.check()
        return lib.tutti_comm_sequence(self.main.comm)

    def set_timeout(self, timeout) -> None:
        self.timeout_ms = milliseconds(timeout)

    _set_default_timeout = set_timeout

    def __repr__(self) -> str:
        return f"<tutti group {self.torch_name}: rank {self.own_rank} of {self.ranks}>"

    supports_coalescing = False

    @property
    def options(self):
        kind = getattr(getattr(c10d, "Backend", None), "Options", None)
        try:
            found = kind(NAME, timedelta(milliseconds=self.timeout_ms))
        except TypeError:  # it is None, or none that Python may make
            raise unsupported(f"tutti: torch {torch.__version__} has no options that a backend can create") from None
        if hasattr(found, "group_name"):
            found.group_name = self.torch_name
        return found

    def get_group_store(self):
        return self.store

    # ---- parts of it

    def split_group(self, ranks, timeout=None, opts=None, group_name=None, group_desc=None, device_types=None):
        """Called on all ranks of this group. ranks: those in the child, in its order. Returns None on the others."""
        ranks, served = list(ranks), self.devices
        if self.own_rank not in ranks:
            return None
        name = group_name or f"{self.torch_name}:split:{','.join(map(str, ranks))}"
        timeout_ms = milliseconds(timeout) or milliseconds(getattr(opts, "_timeout", None)) or self.timeout_ms
        devices = [d for d in served if device_types is None or d in [torch.device(t).type for t in device_types]]
        if len(ranks) == 1:
            lane = joining.alone(name, timeout_ms)
        else:
            lane = joining.child(self.main, ranks, name, timeout_ms)
        store = None if self.store is None else dist.PrefixStore(f"{name}/", self.store)
        group = with_backend(Group(ranks.index(self.own_rank), len(ranks), name, lane, timeout_ms, store), devices)
        group.served = group.offered
        if group_desc is not None:
            group._set_group_desc(group_desc)
        return group

    def perform_nocolor_split(self, device) -> None:
        """Ranks that are not in a child have nothing to do for it."""

    def merge_remote_group(self, *arguments, **named):
        raise unsupported("tutti: groups cannot be merged; new_group makes one of any ranks of the world")

    def _get_backend(self, device):
        """Before torch 2.14 a group of Python's has no backends, and answers for them itself."""
        if Delegate is None:
            return self
        kind = torch.device(device).type
        if kind not in self.devices:
            raise refused(f"tutti: group {self.torch_name} serves {' and '.join(self.devices)}, not {kind}")
        return super()._get_backend(device)

    @property
    def _device_types(self) -> list:
        """Checkpoints and states of optimizers choose one of them for what they send."""
        return [torch.device(name) for name in self.devices]

    # ---- the end

    def abort(self) -> None:
        for lane in self._all_lanes():
            lane.abort()

    def shutdown(self, deadline: Optional[float] = None) -> None:
        """Ends callbacks' lanes last: what they wait for may be in the others."""
        for lane in self._all_lanes():
            lane.leave(deadline)

    def _all_lanes(self) -> list:
        main = getattr(self, "main", None)  # none: __init__ raised
        return [] if main is None else [main, *self._lanes.values()]

    def __del__(self):
        self.shutdown()


def _delegate(name: str):
    def method(self, *arguments, **named):
        return getattr(self.group(), name)(*arguments, **named)

    method.__name__ = name
    return method


def _unsplit(self, *arguments, **named):
    raise unsupported("tutti: a backend cannot be split or merged by itself: use dist.split_group or group.split_group")


def _delegate_class():
    """The Backend of a Group, or None before torch 2.14, whose Backend has no subclasses in Python."""
    if not hasattr(getattr(c10d, "Backend", None), "all_gather_single"):
        return None
    names = [n for n, member in vars(Collectives).items() if callable(member) and not n.startswith("__")]
    names += ["getBackendName", "abort", "shutdown", "set_timeout", "perform_nocolor_split"]
    names += ["_set_sequence_number_for_group", "_get_sequence_number_for_group"]
    members = {name: _delegate(name) for name in names}
    for name, member in vars(c10d.Backend).items():  # where a class does not set one, torch asks for it without end
        if isinstance(member, property) and "supports_" in name:
            members[name] = False
    members["supports_splitting"] = True
    members["options"] = property(lambda self: self.group().options)
    members["split"] = members["merge"] = _unsplit
    return type("Delegate", (c10d.Backend,), members)


Delegate = _delegate_class()


Group.supports_splitting = Delegate is not None


def with_backend(group: Group, devices) -> Group:
    """devices: the kinds of devices whose tensors the group can accept."""
    group.offered = tuple(devices)
    if Delegate is not None:
        group.backend = Delegate(group.own_rank, group.ranks)
        group.backend.group = weakref.ref(group)  # a strong one would be a cycle
        group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        for device in devices:
            group._register_backend(torch.device(device), dist.ProcessGroup.BackendType.CUSTOM, group.backend)
    return group
