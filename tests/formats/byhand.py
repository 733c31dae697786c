"""Segments built and read field by field, from the tables of the format alone.

Nothing of the product is imported here: what it writes must be readable by this, and what this
writes by the product.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

Bytes = bytes | bytearray | memoryview


def crc32c(data: Bytes) -> int:
    """CRC-32C, one bit at a time (polynomial 0x1EDC6F41, reflected)."""
    crc = 0xFFFFFFFF
    for byte in bytes(data):
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def varint(value: int) -> bytes:
    """A zigzag varint."""
    rest = (value << 1) ^ (value >> 63)
    out = b""
    while rest > 127:
        out += bytes([rest & 127 | 128])
        rest >>= 7
    return out + bytes([rest])


def record(offset_delta: int, time_delta: int, key: bytes | None, value: bytes) -> bytes:
    """One record; its length leaves out itself."""
    body = b"\x00" + varint(time_delta) + varint(offset_delta)
    body += varint(-1) if key is None else varint(len(key)) + key
    body += varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(base: int, values: list[bytes], time: int, *, epoch: int = 5, width: int = 0) -> bytes:
    """One batch; `width` offsets in all, if compaction has dropped some at its end."""
    covered = struct.pack(">h", 0)  # attributes
    covered += struct.pack(">i", (width or len(values)) - 1)  # last offset delta
    covered += struct.pack(">q", time)  # first timestamp
    covered += struct.pack(">q", time + max(len(values) - 1, 0))  # max timestamp
    covered += struct.pack(">q", -1)  # producer id
    covered += struct.pack(">h", -1)  # producer epoch
    covered += struct.pack(">i", -1)  # base sequence
    covered += struct.pack(">i", len(values))  # record count
    covered += b"".join(record(i, i, None, value) for i, value in enumerate(values))
    out = struct.pack(">q", base)
    out += struct.pack(">i", 4 + 1 + 4 + len(covered))  # leaves out base offset and itself
    out += struct.pack(">i", epoch)
    out += struct.pack(">b", 2)  # magic
    out += struct.pack(">I", crc32c(covered))
    return out + covered


def segment(base: int, last: int, count: int, created: int, batches: list[bytes]) -> bytes:
    """A `.kfs` file."""
    body = b"".join(batches)
    out = b"KAFS"
    out += struct.pack(">h", 1)  # version
    out += struct.pack(">h", 0)  # flags
    out += struct.pack(">q", base)
    out += struct.pack(">i", count)
    out += struct.pack(">q", created)
    out += struct.pack(">i", 0)  # reserved
    out += body
    out += struct.pack(">I", crc32c(body))
    out += struct.pack(">q", last)
    return out + b"END!"


def index(interval: int, entries: list[tuple[int, int]]) -> bytes:
    """An `.index` file."""
    out = b"IDX\x00"
    out += struct.pack(">h", 1)  # version
    out += struct.pack(">i", len(entries))
    out += struct.pack(">i", interval)
    out += struct.pack(">h", 0)  # reserved
    for offset, position in entries:
        out += struct.pack(">q", offset) + struct.pack(">i", position)
    return out


def section(kind: int, contents: bytes) -> bytes:
    """One section of a `.times` file."""
    return struct.pack(">HHI", kind, 0, len(contents)) + contents


def times(sections: list[bytes], *, version: int = 1) -> bytes:
    """A `.times` file of ready sections."""
    body = b"".join(sections)
    out = b"RKTIMES\x00"
    out += struct.pack(">HHI", version, len(sections), 16 + len(body) + 4)
    out += body
    return out + struct.pack(">I", crc32c(out))


class ReadBatch(NamedTuple):
    """The fields of a batch by the independent reader."""

    base: int
    last: int
    epoch: int
    records: int
    max_time: int
    position: int
    data: bytes


class ReadSegment(NamedTuple):
    """The fields of a segment by the independent reader."""

    base: int
    last: int
    messages: int
    created: int
    batches: list[ReadBatch]


def read_segment(data: bytes) -> ReadSegment:
    """Read a `.kfs` file by the tables, and assert everything that they promise."""
    assert data[0:4] == b"KAFS"
    assert data[4:8] == b"\x00\x01\x00\x00"
    assert data[28:32] == bytes(4)
    assert data[-4:] == b"END!"
    body = data[32:-16]
    assert int.from_bytes(data[-16:-12], "big") == crc32c(body)
    batches, at = [], 0
    while at < len(body):
        size = 12 + int.from_bytes(body[at + 8 : at + 12], "big")
        batches.append(_read_batch(body[at : at + size], 32 + at))
        at += size
    assert at == len(body)
    (base, messages, created) = struct.unpack(">qiq", data[8:28])
    last = int.from_bytes(data[-12:-4], "big")
    return ReadSegment(base, last, messages, created, batches)


def _read_batch(data: bytes, position: int) -> ReadBatch:
    assert data[16] == 2
    assert int.from_bytes(data[17:21], "big") == crc32c(data[21:])
    number = int.from_bytes
    base = number(data[0:8], "big")
    return ReadBatch(
        base=base,
        last=base + number(data[23:27], "big"),
        epoch=number(data[12:16], "big"),
        records=number(data[57:61], "big"),
        max_time=number(data[35:43], "big", signed=True),
        position=position,
        data=data,
    )


def read_index(data: bytes) -> tuple[int, list[tuple[int, int]]]:
    """Read an `.index` file by the tables: interval and entries."""
    assert data[0:6] == b"IDX\x00\x00\x01"
    count, interval = struct.unpack(">ii", data[6:14])
    assert data[14:16] == bytes(2)
    assert len(data) == 16 + 12 * count
    rows: list[Any] = [struct.unpack(">qi", data[at : at + 12]) for at in range(16, len(data), 12)]
    return interval, rows


def read_times(data: bytes) -> dict[int, bytes]:
    """Read a `.times` file: its sections by kind."""
    assert data[0:10] == b"RKTIMES\x00\x00\x01"
    count, size = struct.unpack(">HI", data[10:16])
    assert size == len(data)
    assert int.from_bytes(data[-4:], "big") == crc32c(data[:-4])
    sections, at = {}, 16
    for _ in range(count):
        kind, zero, length = struct.unpack(">HHI", data[at : at + 8])
        assert zero == 0
        sections[kind] = data[at + 8 : at + 8 + length]
        at += 8 + length
    assert at == len(data) - 4
    return sections
