"""Objects of Python between ranks, by pickle: what a job's ranks send is trusted, as the job's secret proves who they are."""

import pickle
from array import array
from itertools import accumulate
from typing import TYPE_CHECKING, Any, List

from ._groups import is_open
from .errors import InvalidError

if TYPE_CHECKING:
    from ._communicator import Comm


def check_no_group(call: str) -> None:
    if is_open():
        raise InvalidError(f"{call}: an object is not sent in a group: its length is received first")


def broadcast(comm: "Comm", value: Any, root: int) -> Any:
    data = broadcast_bytes(comm, pickle.dumps(value) if comm.rank == root else b"", root)
    return value if comm.rank == root else pickle.loads(data)


def broadcast_bytes(comm: "Comm", own: bytes, root: int) -> bytearray:
    """own: of root; the others need not know its length."""
    check_no_group("broadcast_object")
    length = array("q", [len(own)])
    comm.broadcast(length, root)
    data = bytearray(own if comm.rank == root else length[0])
    comm.broadcast(data, root)
    return data


def all_gather(comm: "Comm", value: Any) -> List[Any]:
    check_no_group("all_gather_object")
    data = pickle.dumps(value)
    lengths = array("q", bytes(8 * comm.size))
    comm.all_gather(array("q", [len(data)]), lengths)
    whole = bytearray(sum(lengths))
    comm.all_gatherv(data, whole, lengths)
    values, at = [], 0
    for length in lengths:
        values.append(pickle.loads(memoryview(whole)[at : at + length]))
        at += length
    return values


def scatter(comm: "Comm", parts: List[bytes], root: int) -> bytearray:
    """parts: what root has for each rank; else empty."""
    check_no_group("scatter")
    lengths = array("q", [len(part) for part in parts] or bytes(8 * comm.size))
    comm.broadcast(lengths, root)
    own = bytearray(lengths[comm.rank])
    comm.scatterv(bytearray(b"".join(parts)) if parts else None, own, lengths, root=root)
    return own


def all_to_all(comm: "Comm", parts: List[bytes]) -> List[bytearray]:
    """parts: one for each rank."""
    check_no_group("alltoall")
    sent, received = array("q", map(len, parts)), array("q", bytes(8 * comm.size))
    comm.all_to_all(sent, received)
    whole = bytearray(sum(received))
    comm.all_to_allv(b"".join(parts), sent, whole, received)
    ends = list(accumulate(received))
    return [whole[end - length : end] for end, length in zip(ends, received)]
