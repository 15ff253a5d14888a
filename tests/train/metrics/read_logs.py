"""read_logs.py DIR: prints the contents of the log files below DIR. Uses Python's standard library only.

A line for each value: the format, the step, the name as JSON, and the number's bits (of a float for TensorBoard,
of a double elsewhere), in the order of the files. Exits with 1 and says why where a file is not what it has to be."""
import csv
import json
import os
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


# RFC 3720, B.4, and a record that TensorFlow has written.
assert crc32c(bytes(32)) == 0x8A9136AA
assert masked(b"\x1a\x11CRC test, one two") == 0x5794D08A


def records(data):
    at = 0
    while at < len(data):
        head, (size, checksum) = data[at : at + 8], struct.unpack_from("<QI", data, at)
        assert masked(head) == checksum, "the checksum of a length"
        body = data[at + 12 : at + 12 + size]
        assert len(body) == size, "a record that ends too early"
        assert masked(body) == struct.unpack_from("<I", data, at + 12 + size)[0], "a checksum"
        yield body
        at += 16 + size


def varint(data, at):
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return number, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(key & 7)
            if key & 7 == 2:
                size, at = varint(data, at)
            value, at = data[at : at + size], at + size
            assert len(value) == size, "a field that ends too early"
        yield key >> 3, value


def signed(number):
    return number - (1 << 64) if number >> 63 else number


def show(form, step, name, bits):
    print(form, step, json.dumps(name), bits.hex())


def read_tensorboard(path):
    for i, record in enumerate(records(open(path, "rb").read())):
        event = dict(fields(record))
        assert struct.unpack("<d", event[1])[0] > 1.6e9, "wall_time"
        if i == 0:
            assert event[3] == b"brain.Event:2", "file_version"
            continue
        for number, value in fields(event[5]):
            value = dict(fields(value))
            assert number == 1 and sorted(value) == [1, 2], "a value with other fields"
            show("tensorboard", signed(event[2]), value[1].decode(), value[2][::-1])


def read_csv(path):
    data = open(path, newline="", encoding="utf-8").read()
    assert data.endswith("\n"), "half a row"
    rows = list(csv.reader(data.splitlines(keepends=True), strict=True))
    assert rows[0][:2] == ["step", "time"], "the head"
    for row in rows[1:]:
        assert len(row) == len(rows[0]) and float(row[1]) > 1.6e9, "a row"
        for name, text in zip(rows[0][2:], row[2:]):
            if text:
                show("csv", int(row[0]), name, struct.pack(">d", float(text)))


def refuse(constant):
    raise ValueError(constant + " is no JSON")


def read_json(path):
    for line in open(path, encoding="utf-8"):
        assert line.endswith("\n"), "half a row"
        row = json.loads(line, parse_constant=refuse)
        assert row.pop("time") > 1.6e9, "time"
        step = row.pop("step")
        for name, value in row.items():
            show("json", step, name, struct.pack(">d", float(value)))


for name in sorted(os.listdir(sys.argv[1])):
    reader = {"metrics.csv": read_csv, "metrics.jsonl": read_json}.get(name, read_tensorboard)
    reader(os.path.join(sys.argv[1], name))
