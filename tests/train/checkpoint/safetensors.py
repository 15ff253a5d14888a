# An independent reader and writer of the safetensors format, with the standard library only.
#     safetensors.py read FILE     a line for each tensor, in the file's order: name, dtype, shape, begin, CRC-32 of its bytes
#     safetensors.py values FILE   a line for each tensor of floats: name, dtype, shape: its values
#     safetensors.py write FILE    a file with tensors that safetensors.c expects
import json, struct, sys, zlib

BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
         "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8}


def no_doubles(pairs):
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)), "a key is there twice"
    return dict(pairs)


def tensors(path):
    """The metadata, then each tensor in the file's order: name, dtype, shape, begin, bytes."""
    data = open(path, "rb").read()
    (n,) = struct.unpack("<Q", data[:8])
    assert n % 8 == 0 and n <= 100_000_000 and data[8:9] == b"{"
    header = json.loads(data[8:8 + n].decode("utf-8"), object_pairs_hook=no_doubles)
    metadata = header.pop("__metadata__", {})
    assert all(isinstance(value, str) for value in metadata.values())
    yield metadata
    body, at = data[8 + n:], 0
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        size = BYTES[entry["dtype"]]
        for dimension in entry["shape"]:
            size *= dimension
        assert begin == at and end - begin == size, f"{name} is not where it should be"
        assert (8 + n + begin) % BYTES[entry["dtype"]] == 0, f"{name} is not aligned"
        at = end
        yield name, entry["dtype"], entry["shape"], begin, body[begin:end]
    assert at == len(body)


def read(path):
    metadata, *rest = tensors(path)
    print("metadata", json.dumps(metadata))
    for name, dtype, shape, begin, content in rest:
        print(json.dumps(name), dtype, shape, begin, zlib.crc32(content))


def values(path):
    for name, dtype, shape, _, content in list(tensors(path))[1:]:
        if dtype == "BF16":                           # the upper half of an F32
            content = b"".join(b"\0\0" + content[i:i + 2] for i in range(0, len(content), 2))
        letter = {"BF16": "f", "F16": "e", "F32": "f", "F64": "d"}[dtype]
        print(f"{json.dumps(name)} {dtype} {shape}:", *(repr(x) for x, in struct.iter_unpack("<" + letter, content)))


def write(path):
    header = {"__metadata__": {"made": "by Python"},
              "second": {"shape": [2, 2], "dtype": "F32", "data_offsets": [4, 20]},
              "first ü": {"dtype": "U8", "data_offsets": [0, 4], "shape": [4]},
              "none": {"dtype": "F64", "data_offsets": [20, 20], "shape": [3, 0]}}
    text = json.dumps(header, indent=2).encode()      # no padding, other spaces: allowed
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + bytes([1, 2, 3, 4]) + struct.pack("<4f", 1, -2, 3.5, 4))


{"read": read, "values": values, "write": write}[sys.argv[1]](sys.argv[2])
