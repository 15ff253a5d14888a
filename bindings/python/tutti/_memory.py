"""Memory of tutti_mem_alloc, as NumPy arrays or, on a GPU, as objects with __cuda_array_interface__."""

import ctypes
import math
import os
import weakref
from operator import index
from typing import Any, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _dtypes, _interrupts, _ops
from ._buffers import buffer_of
from ._flights import State
from ._library import OK, Place, lib
from .errors import InvalidError, check

_later: List[int] = []  # addresses whose arrays ended where the library could not be called
_owners: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()  # this rank's part, by number of allocation


class MemPlace(NamedTuple):
    """Where memory of mem_alloc is, for all ranks of the communicator."""

    allocation: int
    offset: int


def _free(address: int, pid: int) -> None:
    if pid != os.getpid():  # a forked process has only a picture of it
        return
    if _ops.callback.is_running:
        _later.append(address)
        return
    lib.tutti_mem_free(address)


class DeviceMemory:
    """Memory of this rank's GPU that the ranks of the node reach: CuPy, Numba and torch.as_tensor take it without a copy."""

    def __init__(self, address: int, shape: Tuple[int, ...], dtype: _dtypes.DType):
        kind = next((kind for (kind, _), known in _dtypes.BY_KIND.items() if known == dtype), "u")  # bfloat16: as integers
        text = f"{'|' if dtype.bytes == 1 else '<'}{kind}{dtype.bytes}"
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": text,
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


def _is_on_device(address: int) -> bool:
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=4)  # RTLD_NOLOAD
    except OSError:
        return False
    kind = ctypes.c_uint()
    found = driver.cuPointerGetAttribute(ctypes.byref(kind), 2, ctypes.c_uint64(address))  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    return bool(found == 0 and kind.value == 2)


def _lengths(call: str, shape: Union[int, Sequence[int]], kind: _dtypes.DType) -> Tuple[Tuple[int, ...], int]:
    """And the bytes."""
    lengths = tuple(map(index, shape if isinstance(shape, Iterable) else (shape,)))
    bytes_ = math.prod(lengths) * kind.bytes
    if min(lengths, default=0) < 0 or bytes_ >= 2**63:
        raise InvalidError(f"{call}: a shape of {lengths} has a negative length, or is beyond all memory")
    return lengths, bytes_


def alloc(state: State, shape: Union[int, Sequence[int]], dtype: Any) -> Any:
    import numpy

    while _later:
        lib.tutti_mem_free(_later.pop())
    kind = _dtypes.of_name(dtype)
    lengths, bytes_ = _lengths("mem_alloc", shape, kind)
    address = ctypes.c_void_p()
    with state as handle:
        _interrupts.call(lib.tutti_mem_alloc, ctypes.byref(address), bytes_, handle, handle=handle, on_interrupt=state.abort)
    if bytes_ == 0 or not address.value:
        lib.tutti_mem_free(address)
        return numpy.zeros(lengths, _dtypes.numpy_dtype(kind))
    if _is_on_device(address.value):
        owner: Any = DeviceMemory(address.value, lengths, kind)
        result = owner
    else:
        owner = (ctypes.c_char * bytes_).from_address(address.value)
        result = numpy.frombuffer(owner, _dtypes.numpy_dtype(kind)).reshape(lengths)
    # Of the object that all views keep. At exit the process's end frees it.
    weakref.finalize(owner, _free, address.value, os.getpid()).atexit = False
    place = Place()
    with state as handle:
        if lib.tutti_mem_place_of(ctypes.byref(place), address, bytes_, handle) == OK and place.allocation:
            _owners[place.allocation] = owner
    return result


def place_of(state: State, memory: Any) -> Optional[MemPlace]:
    buffer, place = buffer_of(memory), Place()
    with state as handle:
        check(lib.tutti_mem_place_of(ctypes.byref(place), buffer.address, buffer.count * buffer.dtype.bytes, handle))
    return MemPlace(place.allocation, place.offset) if place.allocation else None


def at(state: State, place: MemPlace, shape: Union[int, Sequence[int]], dtype: Any) -> Any:
    import numpy

    kind = _dtypes.of_name(dtype)
    lengths, bytes_ = _lengths("mem_at", shape, kind)
    allocation, offset = map(index, place)
    if min(allocation, offset) < 0 or max(allocation, offset) >= 2**64:
        raise InvalidError(f"mem_at: {place} is no place: mem_place_of gives one")
    own = _owners.get(allocation)
    with state as handle:
        address = lib.tutti_mem_at(ctypes.byref(Place(allocation, offset)), bytes_, handle)
    if address is None or own is None:
        raise InvalidError(f"mem_at: this rank reaches no {bytes_} bytes at {place}")
    if bytes_ == 0:
        return numpy.zeros(lengths, _dtypes.numpy_dtype(kind))
    memory: Any = (ctypes.c_char * bytes_).from_address(address)
    memory.own = own
    return numpy.frombuffer(memory, _dtypes.numpy_dtype(kind)).reshape(lengths)
