"""Record batches made by hand, so that any field can be wrong."""

from __future__ import annotations

import gzip
import struct
import zlib

import cramjam
import crc32c
import lz4.frame

MEBIBYTE = 1024 * 1024
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
# Between 0 and now: asking for time 0 finds such a batch, and no rule about times refuses it.
TIME = 1000


def zigzag(value: int) -> bytes:
    """Return a signed number as records write it."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def record(value: bytes = b"v", *, headers: bytes = b"", count: int | None = None) -> bytes:
    """Return one record; `count` is what it says of its headers."""
    body = b"\0\0\0" + zigzag(1) + b"k" + zigzag(len(value)) + value
    body += zigzag(count or 0) + headers
    return zigzag(len(body)) + body


def batch(body: bytes, *, count: int = 1, codec: int = NONE, last: int | None = None) -> bytes:
    """Return a batch whose checksum is right, whatever it says."""
    covered = struct.pack(
        ">hiqqqhii", codec, count - 1 if last is None else last, TIME, TIME, -1, -1, -1, count
    )
    crc = crc32c.crc32c(covered + body)
    rest = struct.pack(">ibI", -1, 2, crc) + covered + body
    return struct.pack(">qi", 0, len(rest)) + rest


GOOD = batch(record())


def gzip_bomb(size: int) -> bytes:
    """Return a whole gzip member of zeros, made of one piece that is repeated."""
    piece_size = 16 * MEBIBYTE
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packer.compress(bytes(32768))
    packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(bytes(piece_size)) + packer.flush(zlib.Z_FULL_FLUSH)
    start = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    # An empty last block, then a checksum that no reader reaches.
    return start + piece * (size // piece_size) + b"\x03\0" + struct.pack("<II", 0, size)


def zstd_bomb(size: int) -> bytes:
    """Return a zstd frame that does not state its size: blocks of one byte, 131 072 times each."""
    block = 128 * 1024
    count = size // block
    middle = (block << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (block << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    window = b"\x68"  # 8 MiB
    return b"\x28\xb5\x2f\xfd\0" + window + middle * (count - 1) + last


def zstd_window(exponent: int) -> bytes:
    """Return a tiny zstd frame that wants a window of two to the power of 10 + exponent."""
    return b"\x28\xb5\x2f\xfd\0" + bytes([exponent << 3]) + b"\x01\0\0"


def lz4_bomb(size: int) -> bytes:
    """Return an lz4 frame of zeros, made of one block that is repeated."""
    block = 4 * MEBIBYTE
    whole: bytes = lz4.frame.compress(
        bytes(block),
        block_size=lz4.frame.BLOCKSIZE_MAX4MB,
        block_linked=False,
        store_size=False,
    )
    start, packed, end = whole[:7], whole[7:-4], whole[-4:]
    return start + packed * (size // block) + end


def snappy_bomb(size: int) -> bytes:
    """Return snappy in xerial's framing, made of one block that is repeated."""
    block = 4 * MEBIBYTE
    packed = bytes(cramjam.snappy.compress_raw(bytes(block)))
    return XERIAL + (struct.pack(">i", len(packed)) + packed) * (size // block)


XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
SNAPPY_LIES = {
    "raw of 4 GiB": b"\xff\xff\xff\xff\x0f\x00a",
    "raw of 2 GiB": b"\xff\xff\xff\xff\x07\x00a",
    "length of six bytes": b"\xff\xff\xff\xff\xff\x0f\x00a",
    "block of -1": XERIAL + struct.pack(">i", -1) + b"\x01\x00a",
    "block of 2 GiB": XERIAL + struct.pack(">i", 2**31 - 1) + b"\x01\x00a",
    "block that says 4 GiB": XERIAL + struct.pack(">i", 7) + b"\xff\xff\xff\xff\x0f\x00a",
}

MILLION_HEADERS = record(headers=b"\0\x01" * 10**6, count=10**6)
"""Headers with an empty name and no value: two bytes each."""
MILLION_HEADERS_PACKED = gzip.compress(MILLION_HEADERS)
