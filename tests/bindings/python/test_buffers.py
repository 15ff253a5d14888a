"""What would break: an object's memory taken for what it is not: too long, of another type, read-only, not contiguous."""

import array
import ctypes

import numpy as np
import pytest
import tutti
from tutti import _dlpack, _dtypes
from tutti._buffers import buffer_of


def what(memory, dtype=None):
    b = buffer_of(memory, dtype)
    return b.count, b.dtype.name, b.is_writable


@pytest.mark.parametrize("name", ["f4", "f8", "f2", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "c8", "c16", "?", "l", "q", "P"])
def test_numpy(name):
    a = np.zeros((3, 5), name)
    b = buffer_of(a)
    assert (b.count, b.dtype.name, b.address, b.is_writable) == (15, a.dtype.name, a.ctypes.data, True)
    a.flags.writeable = False
    assert (buffer_of(a).address, buffer_of(a).is_writable) == (a.ctypes.data, False)
    assert what(memoryview(np.zeros(3, name))) == (3, a.dtype.name, True)


def test_views_of_numpy():
    raw = np.zeros(64, np.uint8)
    view = raw[1:41].view(np.float32)  # not aligned
    assert buffer_of(view).address == raw.ctypes.data + 1 and what(view) == (10, "float32", True)
    assert what(np.zeros((3, 4))[1:2, 1:]) == (3, "float64", True)
    assert what(np.zeros((0, 5))) == (0, "float64", True) and buffer_of(np.zeros(0)).address is None
    assert what(np.float32(2)) == (1, "float32", False)
    for strided in (np.zeros(10)[::2], np.zeros((3, 4)).T, np.zeros((3, 4))[:, :2], np.zeros(4)[::-1]):
        with pytest.raises(tutti.InvalidError, match="not C-contiguous"):
            buffer_of(strided)


@pytest.mark.parametrize("name", [">f4", "S4", "O", "M8[s]", "U2", "f4,i4", "g"])
def test_refused_dtypes(name):
    with pytest.raises(tutti.InvalidError, match="none of Tutti's|byte order"):
        buffer_of(np.zeros(4, name))


def test_a_dtype_converts_nothing():
    """Of floats it would be a sum of their bits."""
    for name, dtype in (("f4", "i32"), ("f8", "i64"), ("f2", "bf16"), ("?", "f32"), ("c8", "i64")):
        with pytest.raises(tutti.InvalidError, match="cannot be read as .*: only integers stand for other types"):
            buffer_of(np.zeros(4, name), dtype)
    for name, dtype in (("i4", "f32"), ("u2", "bf16"), ("?", "u8"), ("?", "bool"), ("f4", "f32"), ("i8", "complex64"), ("u1", "f8_e5m2")):
        assert what(np.zeros(4, name), dtype) == (4, _dtypes.of_name(dtype).name, True)


def test_another_byte_order_with_a_dtype():
    """It says what elements are, and not that their bytes may be swapped."""
    for memory, dtype in ((memoryview(np.zeros(4, ">f4")), "f32"), (np.zeros(4, ">f4"), "f32"), (bytearray(8), np.dtype(">f4"))):
        with pytest.raises(tutti.InvalidError, match="byte order"):
            buffer_of(memory, dtype)
    assert what(memoryview(np.zeros(4, ">u1")), "u8") == (4, "uint8", True)


def test_buffer_protocol():
    assert what(bytearray(5)) == (5, "uint8", True)
    assert what(b"abc") == (3, "uint8", False)
    assert what(array.array("d", [1, 2])) == (2, "float64", True)
    assert what((ctypes.c_long * 3)()) == (3, "int64", True)
    assert what((ctypes.c_float * 2 * 3)()) == (6, "float32", True)
    assert what(memoryview(bytearray(8)).cast("i")) == (2, "int32", True)
    assert what(bytearray()) == (0, "uint8", True)
    a = array.array("i", [7, 8, 9])
    assert buffer_of(a).address == a.buffer_info()[0]
    assert buffer_of(memoryview(a)[1:]).address == a.buffer_info()[0] + 4
    with pytest.raises(tutti.InvalidError, match="not C-contiguous"):
        buffer_of(memoryview(bytearray(8))[::2])
    with pytest.raises(tutti.InvalidError, match="a list is no buffer"):
        buffer_of([1, 2])
    with pytest.raises(tutti.InvalidError, match="another byte order"):
        buffer_of((ctypes.c_int.__ctype_be__ * 2)())


def test_a_bytearray_keeps_its_size_while_it_is_used():
    data = bytearray(8)
    buffer = buffer_of(data)
    with pytest.raises(BufferError):
        data.append(1)
    del buffer
    data.append(1)


def test_read_as():
    assert what(bytearray(8), "f32") == (2, "float32", True)
    assert what(np.zeros(4, np.uint16), "bf16") == (4, "bfloat16", True)
    assert what(np.zeros(4, np.uint8), "f8_e5m2") == (4, "float8_e5m2", True)
    assert what(bytearray(16), np.dtype("c16")) == (1, "complex128", True)
    with pytest.raises(tutti.InvalidError, match="no whole number of elements of float32"):
        buffer_of(bytearray(7), "f32")
    with pytest.raises(tutti.InvalidError, match="float64 cannot be read as float32"):
        buffer_of(np.zeros(2), "f32")
    with pytest.raises(tutti.InvalidError, match="'f33' is none of Tutti's: .*bf16"):
        buffer_of(bytearray(4), "f33")


class Tensor:
    """torch.Tensor's methods, on NumPy's memory."""

    def __init__(self, base, dtype, kind="cpu", contiguous=True):
        self.base, self.dtype, self.kind, self.contiguous = base, dtype, kind, contiguous
        self.shape = base.shape
        self.device = type("device", (), {"type": kind, "__str__": lambda _: kind})()

    data_ptr = lambda self: self.base.ctypes.data
    element_size = lambda self: self.base.itemsize
    is_contiguous = lambda self: self.contiguous
    numel = lambda self: self.base.size
    is_conj = is_neg = lambda self: False


def test_tensors():
    base = np.zeros((2, 3), np.uint16)
    assert what(Tensor(base, "torch.bfloat16")) == (6, "bfloat16", True)
    assert buffer_of(Tensor(base, "torch.bfloat16")).address == base.ctypes.data
    with pytest.raises(tutti.InvalidError, match="not C-contiguous"):
        buffer_of(Tensor(base, "torch.bfloat16", contiguous=False))
    with pytest.raises(tutti.InvalidError, match="on device mps"):
        buffer_of(Tensor(base, "torch.bfloat16", kind="mps"))
    with pytest.raises(tutti.InvalidError, match="torch.qint8 are none"):
        buffer_of(Tensor(base, "torch.qint8"))
    lazy = Tensor(base, "torch.bfloat16")
    lazy.is_conj = lambda: True
    with pytest.raises(tutti.InvalidError, match="is_conj"):
        buffer_of(lazy)


class Exported:
    """An array of another library, that has DLPack alone."""

    def __init__(self, base):
        self.base = base
        self.__dlpack__ = base.__dlpack__


@pytest.mark.parametrize("name", ["f4", "f2", "i8", "u1", "c8"])
def test_dlpack(name):
    base = np.zeros((3, 4), name)
    b = buffer_of(Exported(base))
    assert (b.address, b.count, b.dtype.name, b.is_writable) == (base.ctypes.data, 12, base.dtype.name, True)
    assert buffer_of(Exported(base[1:])).address == base[1:].ctypes.data
    assert buffer_of(Exported(base[:0])).address is None
    with pytest.raises(tutti.InvalidError, match="not C-contiguous"):
        buffer_of(Exported(base.T))


@pytest.mark.parametrize("code,name", [(4, "bfloat16"), (10, "float8_e4m3fn"), (12, "float8_e5m2")])
def test_dlpack_of_small_floats(code, name):
    base = np.zeros(4, np.uint16 if name == "bfloat16" else np.uint8)
    exported, capsule = Exported(base), base.__dlpack__()
    _dlpack._Tensor.from_address(_dlpack._pointer_of(capsule, b"dltensor")).code = code
    exported.__dlpack__ = lambda **_: capsule
    assert (what(exported), buffer_of(exported).address) == ((4, name, True), base.ctypes.data)
    _dlpack._Tensor.from_address(_dlpack._pointer_of(capsule, b"dltensor")).code = 13
    with pytest.raises(tutti.InvalidError, match="DLPack's type 13"):
        buffer_of(exported)


class OnDevice:
    def __init__(self, **facts):
        self.__cuda_array_interface__ = dict(shape=(2, 3), typestr="<f4", data=(4096, False), version=3, **facts)


def test_cuda_array_interface():
    b = buffer_of(OnDevice(stream=1))
    assert (b.address, b.count, b.dtype.name, b.is_device, b.stream) == (4096, 6, "float32", True, None)
    assert buffer_of(OnDevice(stream=0x55)).stream == 0x55
    assert buffer_of(OnDevice(strides=(12, 4))).count == 6
    with pytest.raises(tutti.InvalidError, match="not C-contiguous"):
        buffer_of(OnDevice(strides=(4, 8)))


def test_names():
    for name, dtype in _dtypes.BY_NAME.items():
        assert _dtypes.of_name(name) is dtype
    assert _dtypes.of_name(np.float32).name == "float32" and _dtypes.of_name(np.dtype("i2")).name == "int16"
