"""Where a caller's array, tensor or bytes are: address, elements, dtype, and whether the library may write there."""

import ctypes
import sys
from ctypes import c_char_p, c_int, c_ssize_t, c_void_p, py_object
from typing import Any, Dict, List, Optional, Tuple

from . import _dlpack, _dtypes
from .errors import InvalidError


class Buffer:
    """Memory of a caller. count is elements of dtype; owner keeps the memory while a call uses it."""

    __slots__ = ("address", "count", "dtype", "is_writable", "owner", "stream", "is_device", "__weakref__")

    def __init__(self, address: Optional[int], count: int, dtype: _dtypes.DType, is_writable: bool, owner: Any):
        self.address, self.count, self.dtype, self.is_writable, self.owner = address, count, dtype, is_writable, owner
        self.stream: Optional[int] = None
        self.is_device = False


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", c_void_p),
        ("obj", py_object),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


_get_buffer = ctypes.PYFUNCTYPE(c_int, py_object, c_void_p, c_int)(("PyObject_GetBuffer", ctypes.pythonapi))
_put_buffer = ctypes.PYFUNCTYPE(None, c_void_p)(("PyBuffer_Release", ctypes.pythonapi))
_byte = ctypes.c_char
_numpy_dtypes: Dict[Any, _dtypes.DType] = {}  # numpy.dtype: ours; filled as they come


def buffer_of(memory: Any, dtype: Any = None) -> Buffer:
    """The buffer that memory is. dtype: what its elements are, where memory does not say so itself, or says integers.

    InvalidError: memory is none, is not C-contiguous, or its elements are none that the library knows.
    """
    if isinstance(memory, Buffer):
        return memory
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(memory, numpy.ndarray):
        found = _of_numpy(memory)
    elif hasattr(memory, "data_ptr") and hasattr(memory, "element_size"):
        found = _of_torch(memory)
    elif hasattr(memory, "__cuda_array_interface__"):
        found = _of_cuda(memory)
    else:
        try:
            view = memoryview(memory)
        except TypeError:
            view = None
        if view is not None:
            found = _of_view(view, dtype)
        elif hasattr(memory, "__dlpack__"):
            found = _of_dlpack(memory)
        else:
            raise InvalidError(
                f"a {type(memory).__name__} is no buffer: pass a NumPy array, a tensor, or an object with the buffer protocol, "
                "__dlpack__ or __cuda_array_interface__"
            )
    return found if dtype is None else _read_as(found, _dtypes.of_name(dtype))


def _not_contiguous(what: str, cure: str) -> InvalidError:
    return InvalidError(f"the {what} is not C-contiguous: pass {cure}, or a copy of it")


def _not_contiguous_array(array: Any) -> InvalidError:
    return _not_contiguous(f"array of shape {array.shape}", "numpy.ascontiguousarray(array) where it is only read")


def _of_numpy(array: Any) -> Buffer:
    found = _numpy_dtypes.get(array.dtype)
    if found is None:
        found = _of_numpy_dtype(array.dtype)
    flags = array.flags
    if not flags.c_contiguous:
        raise _not_contiguous_array(array)
    is_writable = flags.writeable
    address = None
    if array.size:
        try:
            address = ctypes.addressof(_byte.from_buffer(array))
        except (TypeError, ValueError):  # read-only, or a dtype of ml_dtypes
            address = array.__array_interface__["data"][0]
    return Buffer(address, array.size, found, is_writable, array)


def _of_numpy_dtype(dtype: Any) -> _dtypes.DType:
    found = _dtypes.BY_KIND.get((dtype.kind, dtype.itemsize)) or _dtypes.BY_NAME.get(dtype.name)
    if not dtype.isnative:
        raise InvalidError(
            f"elements of dtype {dtype.str} are in the byte order of other machines: pass array.astype('{dtype.name}')"
        )
    if found is None:
        raise InvalidError(
            f"elements of dtype {dtype} are none of Tutti's: floats, integers, bools and complex numbers of up to 64 bits are"
        )
    _numpy_dtypes[dtype] = found
    return found


def _of_torch(tensor: Any) -> Buffer:
    """torch.Tensor, and what has its methods."""
    name = str(tensor.dtype).replace("torch.", "", 1)
    found = _dtypes.BY_NAME.get(name)
    if found is None:
        raise InvalidError(f"elements of dtype {tensor.dtype} are none of Tutti's")
    if not tensor.is_contiguous():
        raise _not_contiguous(f"tensor of shape {tuple(tensor.shape)}", "tensor.contiguous() where it is only read")
    for lazy in ("is_conj", "is_neg"):
        if hasattr(tensor, lazy) and getattr(tensor, lazy)():
            raise InvalidError(
                f"the tensor's memory has other values than the tensor, since {lazy}() is true: pass a resolved copy of it"
            )
    buffer = Buffer(tensor.data_ptr() or None, tensor.numel(), found, True, tensor)
    device = getattr(tensor, "device", None)
    kind = getattr(device, "type", "cpu")
    if kind == "cuda":
        buffer.is_device = True
        buffer.stream = sys.modules["torch"].cuda.current_stream(device).cuda_stream or None
    elif kind != "cpu":
        raise InvalidError(f"the tensor is on device {device}: Tutti reaches memory of the CPU and of CUDA GPUs")
    return buffer


def _of_cuda(memory: Any) -> Buffer:
    """CuPy, Numba and others. https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html"""
    facts = memory.__cuda_array_interface__
    text = facts["typestr"]
    size = int(text[2:])
    found = _dtypes.BY_KIND.get((text[1], size))
    if found is None or (text[0] == ">" and size > 1):
        raise InvalidError(f"elements of type {text} are none of Tutti's")
    count = 1
    packed: List[int] = []
    for length in reversed(facts["shape"]):
        packed.insert(0, count * size)
        count *= length
    strides = facts.get("strides")
    if strides is not None and count and any(s != p for s, p, n in zip(strides, packed, facts["shape"]) if n != 1):
        raise _not_contiguous(f"device array of shape {tuple(facts['shape'])}", "a contiguous one")
    address, is_read_only = facts["data"]
    buffer = Buffer(address or None, count, found, not is_read_only, memory)
    buffer.is_device = True
    stream = facts.get("stream")
    buffer.stream = None if stream in (None, 1) else int(stream)  # 1: the legacy default stream
    return buffer


def _of_view(view: memoryview, dtype: Any) -> Buffer:
    """The buffer protocol. The view keeps a bytearray from being resized while a call uses it."""
    found = _dtypes.of_format(view.format, view.itemsize)
    if found is None and (dtype is None or _dtypes.is_swapped(view.format, view.itemsize)):
        raise InvalidError(
            f"elements of format {view.format!r} with {view.itemsize} bytes are none of Tutti's, or in another byte order"
        )
    return _bytes_of_view(view, found or _dtypes.UINT8)


def _bytes_of_view(view: memoryview, dtype: _dtypes.DType) -> Buffer:
    if not view.c_contiguous:
        raise _not_contiguous(f"memory of shape {view.shape}", "a contiguous part")
    address = None
    if view.nbytes:
        raw = _PyBuffer()
        _get_buffer(view, ctypes.addressof(raw), 0x18)  # PyBUF_STRIDES: also of read-only memory
        address = raw.buf
        _put_buffer(ctypes.addressof(raw))
    return Buffer(address, view.nbytes // dtype.bytes, dtype, not view.readonly, view)


def bytes_of(memory: Any) -> Tuple[Buffer, int]:
    """memory as bytes, and the bytes of one of its elements, which may have a type that the library does not know."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(memory, numpy.ndarray):
        if memory.dtype.hasobject:
            raise InvalidError("the array's elements are objects, whose addresses mean nothing to other processes")
        if not memory.flags.c_contiguous:
            raise _not_contiguous_array(memory)
        if not memory.nbytes:
            return Buffer(None, 0, _dtypes.UINT8, memory.flags.writeable, memory), memory.itemsize
        return _of_numpy(memory.view(numpy.ndarray).reshape(-1).view(numpy.uint8)), memory.itemsize
    try:
        view = memoryview(memory)
    except TypeError:
        found = buffer_of(memory)
        size, found.count, found.dtype = found.dtype.bytes, found.count * found.dtype.bytes, _dtypes.UINT8
        return found, size
    if "O" in view.format:
        raise InvalidError("the buffer's elements are objects, whose addresses mean nothing to other processes")
    return _bytes_of_view(view, _dtypes.UINT8), view.itemsize


def _of_dlpack(array: Any) -> Buffer:
    x = _dlpack.export(array)
    buffer = Buffer(x.address if x.elements else None, x.elements, x.dtype, x.is_writable, x.capsule)
    buffer.is_device = x.device_type in (_dlpack.CUDA, _dlpack.CUDA_MANAGED)
    if not buffer.is_device and x.device_type not in (_dlpack.CPU, _dlpack.CUDA_HOST):
        raise InvalidError(
            f"the {type(array).__name__} is on a device of DLPack's kind {x.device_type}: Tutti reaches CPU and CUDA"
        )
    return buffer


def _read_as(buffer: Buffer, dtype: _dtypes.DType) -> Buffer:
    """The same bytes as elements of dtype: of bytes of any dtype, and of integers of the same size."""
    have = buffer.dtype
    if have == dtype:
        return buffer
    if have.is_float or (have.is_bool and dtype.bytes != 1):
        raise InvalidError(
            f"elements of {have.name} cannot be read as {dtype.name}: only integers stand for other types, so convert it"
        )
    if have.bytes != dtype.bytes and have.bytes != 1:
        raise InvalidError(
            f"elements of {have.name} cannot be read as {dtype.name}: they have {have.bytes} and {dtype.bytes} bytes"
        )
    whole, rest = divmod(buffer.count * have.bytes, dtype.bytes)
    if rest:
        raise InvalidError(
            f"{buffer.count} bytes are no whole number of elements of {dtype.name}, which have {dtype.bytes} bytes"
        )
    buffer.count, buffer.dtype = whole, dtype
    return buffer


def stream_of(call: str, keep: Tuple[Any, ...]) -> Optional[int]:
    """The stream that the device buffers of a call came with."""
    found: Optional[Buffer] = None
    for buffer in keep:
        if isinstance(buffer, Buffer) and buffer.is_device:
            if found is not None and found.stream != buffer.stream:
                raise InvalidError(f"{call}: its buffers come with different streams: name one by stream=")
            found = buffer
    return found.stream if found is not None else None
