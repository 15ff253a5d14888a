"""Objects of Python between ranks, by pickle: what a job's ranks send is trusted, as the job's secret proves who they are.

A rank that cannot pickle its objects sends a Refusal in their place, so that the others do not wait for it. It raises its
own error; the ranks that receive the Refusal raise one that quotes it. After a call in which all ranks wait for all others,
they also agree on whether each has unpickled what it received (read_together).
"""

import pickle
from array import array
from itertools import accumulate
from typing import Any, Callable, Iterable, List, NamedTuple, Optional, Tuple, TypeVar

from ._groups import is_open
from ._types import Comm
from .errors import Error, InvalidError

_Read = TypeVar("_Read")


class Refusal(NamedTuple):
    error: str


def refusal_of(error: Exception) -> bytes:
    try:
        text = str(error)
    except Exception:  # of a class of the program
        text = "(its message cannot be printed)"
    return pickle.dumps(Refusal(f"{type(error).__name__}: {text}"))


def unpickled(call: str, data: Any, rank: int) -> Any:
    """rank: from which data is."""
    value = pickle.loads(data)
    if isinstance(value, Refusal):
        raise Error(f"{call} raised on rank {rank}: {value.error}")
    return value


def agree(comm: Comm, call: str, error: Optional[Exception]) -> None:
    """Raises on all ranks if one has an error: a rank's own, or one that quotes that of the first rank which has one."""
    has_error = array("B", bytes(comm.size))
    try:
        comm.all_gather(array("B", [error is not None]), has_error)
        if any(has_error) and not all(has_error):
            first = has_error.index(1)
            own = refusal_of(error) if error is not None and comm.rank == first else b""
            data = broadcast_bytes(comm, own, first)
            if error is None:
                unpickled(call, data, first)
    except Error as unsent:
        if error is None:
            raise
        raise error from unsent
    if error is not None:
        raise error


def read_together(comm: Comm, call: str, error: Optional[Exception], read: Callable[[], _Read]) -> _Read:
    """Returns read(), which unpickles what this rank received. All ranks raise if it raises on one, or if one has an error
    from before."""
    if error is None:
        try:
            value = read()
        except Exception as raised:
            error = raised
        except BaseException:
            comm.abort()
            raise
    agree(comm, call, error)
    return value


def _pickled(value: Any) -> Tuple[bytes, Optional[Exception]]:
    try:
        return pickle.dumps(value), None
    except Exception as error:
        return refusal_of(error), error


def check_no_group(call: str) -> None:
    if is_open():
        raise InvalidError(f"{call}: an object is not sent in a group: its length is received first")


def broadcast(comm: Comm, value: Any, root: int) -> Any:
    own, error = _pickled(value) if comm.rank == root else (b"", None)
    data = broadcast_bytes(comm, own, root)
    if error is not None:
        raise error
    return value if comm.rank == root else unpickled("broadcast_object", data, root)


def broadcast_bytes(comm: Comm, own: bytes, root: int) -> bytearray:
    """own: of root; the others need not know its length."""
    check_no_group("broadcast_object")
    length = array("q", [len(own)])
    comm.broadcast(length, root)
    data = bytearray(own if comm.rank == root else length[0])
    comm.broadcast(data, root)
    return data


def all_gather(comm: Comm, value: Any) -> List[Any]:
    check_no_group("all_gather_object")
    data, error = _pickled(value)
    lengths = array("q", bytes(8 * comm.size))
    comm.all_gather(array("q", [len(data)]), lengths)
    whole = bytearray(sum(lengths))
    comm.all_gatherv(data, whole, lengths)
    return _read_blocks(comm, "all_gather_object", error, whole, lengths)


def _read_blocks(comm: Comm, call: str, error: Optional[Exception], whole: bytearray, lengths: Iterable[int]) -> List[Any]:
    """whole: a block from each rank."""
    blocks = [memoryview(whole)[end - n : end] for end, n in zip(accumulate(lengths), lengths)]
    return read_together(comm, call, error, lambda: [unpickled(call, block, rank) for rank, block in enumerate(blocks)])


def scatter(comm: Comm, parts: List[bytes], root: int) -> bytearray:
    """parts: what root has for each rank; else empty."""
    check_no_group("scatter")
    lengths = array("q", [len(part) for part in parts] or bytes(8 * comm.size))
    comm.broadcast(lengths, root)
    own = bytearray(lengths[comm.rank])
    comm.scatterv(bytearray(b"".join(parts)) if parts else None, own, lengths, root=root)
    return own


def all_to_all(comm: Comm, values: Iterable[Any]) -> List[Any]:
    """values: one for each rank."""
    check_no_group("alltoall")
    refused: Optional[Exception] = None
    try:
        parts = [pickle.dumps(value) for value in values]
        if len(parts) != comm.size:
            raise InvalidError(f"alltoall: {len(parts)} objects for {comm.size} ranks")
    except Exception as error:
        parts, refused = [refusal_of(error)] * comm.size, error
    sent, received = array("q", map(len, parts)), array("q", bytes(8 * comm.size))
    comm.all_to_all(sent, received)
    whole = bytearray(sum(received))
    comm.all_to_allv(b"".join(parts), sent, whole, received)
    return _read_blocks(comm, "alltoall", refused, whole, received)
