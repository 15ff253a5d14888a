"""Types that the other modules share: the keywords of calls and of communicators, and what is needed of a communicator."""

from __future__ import annotations

from typing import Any, Optional, Protocol, TypedDict


class Options(TypedDict, total=False):
    """Keywords of every call."""

    dtype: Any
    timeout: Optional[float]
    label: Optional[str]
    stream: Optional[int]
    done: Any  # of Comm.start's


class ChildConfig(TypedDict, total=False):
    transports: Optional[str]
    timeout: Optional[float]
    device: Optional[int]
    deterministic: int
    name: Optional[str]


class GrowConfig(ChildConfig, total=False):
    rendezvous: Optional[str]
    secret: Optional[str]


class InitConfig(GrowConfig, total=False):
    rank: int
    world_size: int


class Comm(Protocol):
    """The part of tutti.Comm that calls of Python objects are made of."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def broadcast(self, buffer: Any, root: int = 0) -> Any: ...

    def all_gather(self, send: Any, recv: Any) -> Any: ...

    def all_gatherv(self, send: Any, recv: Any, counts: Any) -> Any: ...

    def scatterv(self, send: Any, recv: Any, counts: Any, *, root: int = 0) -> Any: ...

    def all_to_all(self, send: Any, recv: Any) -> Any: ...

    def all_to_allv(self, send: Any, send_counts: Any, recv: Any, recv_counts: Any) -> Any: ...

    def abort(self) -> None: ...
