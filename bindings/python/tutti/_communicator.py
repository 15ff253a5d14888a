"""Communicators: joining, children, recovery after a failure, leaving."""

from __future__ import annotations

import ctypes
import warnings
from ctypes import byref, c_int, c_void_p
from functools import partial
from typing import TYPE_CHECKING, Any, List, NamedTuple, NoReturn, Optional, Sequence, Union

from . import _ends, _exits, _groups, _interrupts, _issue, _memory, _objects, _ops
from ._buffers import buffer_of
from ._calls import ANY, Calls
from ._checks import fits, text
from ._flights import State
from ._issue import CallArgs
from ._library import OK, Config, Stats, lib
from ._types import ChildConfig, GrowConfig, InitConfig, Options
from ._works import Work
from .errors import Error, InvalidError, PeerError, check, error_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


class CommStats(NamedTuple):
    """Of this rank, since the communicator was made. Bytes are payload."""

    collectives: int
    messages: int
    sent_bytes: int
    received_bytes: int
    window_bytes: int
    staged_bytes: int


class CommConfig(NamedTuple):
    """timeout is in seconds."""

    transports: Optional[str]
    name: Optional[str]
    timeout: float
    deterministic: int


def _config(
    rank: int = 0,
    world_size: int = 0,
    rendezvous: Optional[str] = None,
    transports: Optional[str] = None,
    secret: Optional[str] = None,
    timeout: Optional[float] = None,
    device: Optional[int] = None,
    deterministic: int = 0,
    name: Optional[str] = None,
) -> Config:
    return Config(
        fits("the configuration", "rank", rank),
        fits("the configuration", "world_size", world_size),
        text("rendezvous", rendezvous),
        text("transports", transports),
        text("secret", secret),
        _groups.timeout_ms(timeout),
        0 if device is None else fits("the configuration", "device + 1", device + 1),
        fits("the configuration", "deterministic", deterministic),
        text("name", name),
    )


def init(**config: Unpack[InitConfig]) -> "Comm":
    """Joins the job: collective over its ranks, returns when all have joined, at the deadline at the latest.

    Without arguments all is the launcher's environment (tuttirun, torchrun, mpirun, srun); without one a world of one.
    Arguments, each by its name:
        rank, world_size  numbers; world_size 1: alone
        rendezvous        "tcp://host:port", "file:///shared/path", or what rendezvous_open gave
        transports        "shm,tcp", "^verbs" (all but); None: all
        secret            the job's shared secret; None: TUTTI_SECRET
        timeout           in seconds, of its calls that have none of their own; None: TUTTI_TIMEOUT_MS
        device            the number of the CUDA device whose memory mem_alloc gives
        deterministic     1: bits that do not depend on algorithm, transport and layout
        name              in error messages, 1 to 31 bytes
    If one rank fails, all do, with its message: InvalidError, TimeoutError (names the missing ranks), AuthError,
    MismatchError, PeerError, SystemCallError, OutOfMemoryError, UnsupportedError.
    """
    built = _config(**config)
    (handle,) = _interrupts.Joining(lib.tutti_init, 1).run(byref(built))
    return Comm(handle)


def init_all(n: int, **config: Unpack[InitConfig]) -> List["Comm"]:
    """n ranks in this process: for n threads, or for one thread that issues in a group or by Comm.start. Arguments: as init."""
    if fits("init_all", "n", n) < 1:
        raise InvalidError(f"init_all: n is {n}: it is at least 1")
    built = _config(**config)
    handles = _interrupts.Joining(lib.tutti_init_all, n).run(n, byref(built))
    return [Comm(handle) for handle in handles]


def rendezvous_open() -> str:
    """A thread of this process, which need not be a rank, serves a rendezvous until the ranks have joined.

    The URL has a one-time secret: give it to every rank's init(rendezvous=url, rank=..., world_size=...).
    """
    url = ctypes.create_string_buffer(512)
    check(lib.tutti_rendezvous_open(url, len(url)))
    return url.value.decode()


def rendezvous_close(url: str) -> None:
    """Ends a rendezvous of this process before its ranks have joined."""
    check(lib.tutti_rendezvous_close(text("rendezvous_close: url", url)))


class Start(Calls[Work]):
    """The calls of a communicator that return at once, each a Work.

    done=f calls f(work) once, when the work is over: in a thread of this package that calls one such function after another.
    There f may do all that a thread may, and finds in work.wait() or work.test() what the call failed with. What f raises goes
    to sys.excepthook. A 1,025th call in flight waits for room, and an event loop with it.
    """

    def __init__(self, comm: "Comm"):
        self._state, self.rank, self.size, self._comm = comm._state, comm.rank, comm.size, comm

    def _issue(self, args: CallArgs) -> Work:
        if _groups.is_open():
            raise InvalidError(
                f"{args.name}: a group is open on this thread, and its calls have one work: use group(wait=False)"
            )
        done = args.options.pop("done", None) if args.options else None
        work = Work(_issue.begin(self._state, args, self._comm, _ends.fd_of(done)))
        if done is not None:
            _ends.of_done().call(work._flight, partial(done, work))
        return work

    def recv(self, buffer: Any, peer: int = ANY, tag: int = 0, **options: Unpack[Options]) -> Work:
        """A message of rank peer, or of whichever rank sends first; Work.source says which. Count and dtype as of its send."""
        return self._recv(buffer, peer, tag, options, c_int(ANY))


class Comm(Calls[None]):
    """A communicator: what MPI calls so too, and c10d a process group. Made by init, init_all, split, dup and their kin.

    One thread at a time issues calls on it, any thread. Blocking calls are methods: comm.all_reduce(x). comm.start has the
    same calls, and each returns a Work: comm.start.all_reduce(x). A signal, as Ctrl-C, ends a blocking call at once: the
    communicator is aborted then, so that the other ranks hear of it.
    destroy(), or the end of its with block, leaves.
    """

    def __init__(self, handle: int):
        """Of a handle of the library, which is this object's from now on. Programs use init."""
        self._start: Optional[Start] = None
        self._look(handle)
        self._state = _exits.opened(State(handle))

    def _look(self, handle: Optional[int]) -> None:
        self.rank: int = lib.tutti_rank(handle)
        self.size: int = lib.tutti_size(handle)
        if self._start is not None:
            self._start.rank, self._start.size = self.rank, self.size

    def _issue(self, args: CallArgs) -> None:
        _issue.run(self._state, args)

    def recv(self, buffer: Any, peer: int = ANY, tag: int = 0, **options: Unpack[Options]) -> int:
        """A message of rank peer, or of whichever rank sends first: returns which (in a group ANY: it is not known yet).

        Count and dtype are those of its send; else both calls are a MismatchError, and the buffer stays as it is.
        """
        source = c_int(ANY)
        self._recv(buffer, peer, tag, options, source)
        return source.value

    def broadcast_object(self, value: Any = None, root: int = 0) -> Any:
        """root's value on every rank, by pickle. Two broadcasts."""
        return _objects.broadcast(self, value, root)

    def all_gather_object(self, value: Any) -> List[Any]:
        """The values of all ranks in their order, by pickle. Three calls.

        If one rank cannot pickle its value, or cannot unpickle what it received, all ranks raise.
        """
        return _objects.all_gather(self, value)

    @property
    def start(self) -> Start:
        """The same calls, asynchronous: each returns a Work."""
        if self._start is None:
            self._start = Start(self)
        return self._start

    @property
    def handle(self) -> int:
        """The library's tutti_comm *, for other bindings: this object's until destroy."""
        if self._state.handle is None:
            raise InvalidError("the communicator was destroyed")
        return self._state.handle

    # ---- where this rank is

    @property
    def local_rank(self) -> int:
        """Among the ranks of this node."""
        return lib.tutti_local_rank(self.handle)  # type: ignore[no-any-return]

    @property
    def local_size(self) -> int:
        return lib.tutti_local_size(self.handle)  # type: ignore[no-any-return]

    @property
    def node_rank(self) -> int:
        return lib.tutti_node_rank(self.handle)  # type: ignore[no-any-return]

    @property
    def num_nodes(self) -> int:
        return lib.tutti_num_nodes(self.handle)  # type: ignore[no-any-return]

    def parent_rank(self, rank: int) -> int:
        """What rank was in the communicator that this one came from; -1: it is new."""
        return lib.tutti_parent_rank(self.handle, fits("parent_rank", "rank", rank))  # type: ignore[no-any-return]

    @property
    def failure(self) -> Optional[Error]:
        """Why the communicator has failed; None: it has not. The first failure stays. Never blocks."""
        with self._state as handle:
            status = lib.tutti_comm_status(handle)
            return None if status == OK else error_of(status, handle)

    @property
    def failed(self) -> List[int]:
        """The ranks that are known to have failed."""
        ranks = (c_int * max(1, self.size))()
        with self._state as handle:
            count = lib.tutti_comm_failed(handle, ranks, len(ranks))
        return list(ranks[:count])

    @property
    def sequence(self) -> int:
        """How many collectives this rank has issued."""
        return lib.tutti_comm_sequence(self.handle)  # type: ignore[no-any-return]

    @property
    def stats(self) -> CommStats:
        stats = Stats()
        with self._state as handle:
            check(lib.tutti_comm_stats(handle, byref(stats)))
        return CommStats(*(getattr(stats, name) for name in CommStats._fields))

    @property
    def config(self) -> CommConfig:
        config = Config()
        with self._state as handle:  # the texts are the communicator's
            check(lib.tutti_comm_config(handle, byref(config)))
            transports, name = ((s or b"").decode() or None for s in (config.transports, config.name))
        return CommConfig(transports, name, config.timeout_ms / 1000, config.deterministic)

    # ---- children; collective but for create_from

    def _child(self, function: Any, *arguments: Any) -> Optional["Comm"]:
        child = c_void_p()
        with self._state as handle:
            try:
                _interrupts.call(function, handle, *arguments, byref(child), handle=handle, on_interrupt=self._state.abort)
            except BaseException:
                lib.tutti_comm_destroy(child)  # an exception may have come after it was made
                raise
        return Comm(child.value) if child.value else None

    def _child_config(self, config: ChildConfig) -> Any:
        return byref(_config(**{**self.config._asdict(), **config})) if config else None

    def split(self, color: int, key: int = 0, **config: Unpack[ChildConfig]) -> Optional["Comm"]:
        """Ranks of one color make a child, ordered by key, then by rank. color < 0: takes part, and gets None.

        config: transports, timeout, device, deterministic, name as in init; those that are not given are the parent's.
        """
        fits("split", "color", color)
        fits("split", "key", key)
        return self._child(lib.tutti_comm_split, color, key, self._child_config(config))

    def create_from(self, ranks: Sequence[int], tag: int = 0, **config: Unpack[ChildConfig]) -> "Comm":
        """Called by the listed ranks alone, with the same list: a child in its order. tag tells apart those made at once."""
        listed = (c_int * len(ranks))(*(fits("create_from", "a rank", rank) for rank in ranks))
        fits("create_from", "tag", tag)
        child = self._child(lib.tutti_comm_create_from, listed, len(ranks), tag, self._child_config(config))
        assert child is not None
        return child

    def dup(self) -> "Comm":
        """A communicator of the same ranks in the same order."""
        child = self._child(lib.tutti_comm_dup)
        assert child is not None
        return child

    # ---- after a failure; collective over the living

    def shrink(self) -> "Comm":
        """A new communicator of the ranks that call it, in their order. This one has failed then: destroy it.

        A rank that does not come by the timeout is left out. TimeoutError: too few came to be sure. PeerError: the others
        went on without this rank.
        """
        child = self._child(lib.tutti_comm_shrink)
        assert child is not None
        return child

    def grow(self, size: int, **config: Unpack[GrowConfig]) -> "Comm":
        """A communicator of size ranks: these, and processes that call init with TUTTI_RESTARTED=1 meanwhile.

        config: as for split, plus rendezvous and secret. What is not given defaults to this communicator's.
        """
        fits("grow", "size", size)
        child = self._child(lib.tutti_comm_grow, size, self._child_config(config))
        assert child is not None
        return child

    def recover(self, size: int) -> None:
        """Shrinks and, with tuttirun --max-restarts, grows to size ranks, until no rank dies meanwhile. This object becomes
        the new communicator, perhaps with fewer ranks and another rank; on all ranks, or none."""
        state = self._state
        fits("recover", "size", size)
        with state as handle:
            cell = c_void_p(handle)
            try:
                _interrupts.call(lib.tutti_recover, byref(cell), size, on_interrupt=state.abort)
            finally:
                state.handle = cell.value
                self._look(cell.value)

    def agree(self, flag: int) -> int:
        """The bitwise AND of the flags of all ranks, the same on all; also on a failed communicator.

        PeerError: ranks were missing; its .flag is the AND of the others, and the same on all that get it.
        """
        cell = c_int(fits("agree", "flag", flag))
        try:
            with self._state as handle:
                _interrupts.call(lib.tutti_comm_agree, handle, byref(cell), on_interrupt=self._state.abort)
        except PeerError as error:
            error.flag = cell.value  # type: ignore[attr-defined]
            raise
        return cell.value

    # ---- leaving

    def abort(self) -> None:
        """From any thread: every pending and later call raises AbortedError here, and that or PeerError on the others."""
        with self._state as handle:
            check(lib.tutti_comm_abort(handle))

    def destroy(self) -> None:
        """Works in flight end first, by themselves or at their deadline. Twice does nothing."""
        if self._state.handle is not None:
            _exits.close(self._state)

    def __enter__(self) -> "Comm":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None and self._state.flights:
            self._state.abort()  # else works in flight would be waited for
        self.destroy()

    def __del__(self) -> None:
        state = getattr(self, "_state", None)
        if state is None or not state.is_here() or _interrupts is None or _interrupts.exiting:
            return
        if _ops.callback.is_running:
            return  # under the library's locks: the end of the process destroys it
        warnings.warn(f"{self!r} was not destroyed", ResourceWarning, stacklevel=2, source=self)
        _exits.close(state, is_exit=True)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a communicator is of one process: it is neither copied nor pickled")

    def __repr__(self) -> str:
        return f"<tutti.Comm rank {self.rank} of {self.size}{'' if self._state.handle else ', destroyed'}>"

    # ---- memory that every rank of the node can reach

    def mem_alloc(self, shape: Union[int, Sequence[int]], dtype: Any = "f32") -> Any:
        """Collective, the same bytes on every rank: a NumPy array of zeros whose collectives skip the staging copies.

        It is freed with its last view, and may outlive the communicator. With init(device=...) it may be memory of the
        GPU: then an object with __cuda_array_interface__. OutOfMemoryError, on all ranks: one of them has none.
        """
        return _memory.alloc(self._state, shape, dtype)

    def mem_place_of(self, memory: Any) -> Optional[_memory.MemPlace]:
        """Local: where memory is, in numbers that mean the same to all ranks here. They travel as any other data.

        memory: an array of mem_alloc, or a part of it. None: it is ordinary memory, or not all ranks reach it.
        UnsupportedError: the ranks share no memory.
        """
        return _memory.place_of(self._state, memory)

    def mem_at(self, place: _memory.MemPlace, shape: Union[int, Sequence[int]], dtype: Any = "f32") -> Any:
        """Local: an array of another rank's memory, without a copy. The program orders what the ranks read and write.

        The array keeps this rank's own part of that mem_alloc, so that its memory stays; its contents are the other rank's
        until that one frees it. InvalidError: this rank does not reach it, or it has fewer bytes.
        """
        return _memory.at(self._state, place, shape, dtype)

    def mem_register(self, memory: Any) -> None:
        """Local, a hint: this memory is used again and again, so transports that register memory do that once."""
        buffer = buffer_of(memory)
        with self._state as handle:
            check(lib.tutti_mem_register(buffer.address, buffer.count * buffer.dtype.bytes, handle))

    def mem_deregister(self, memory: Any) -> None:
        """Before the memory is freed."""
        with self._state as handle:
            check(lib.tutti_mem_deregister(buffer_of(memory).address, handle))
