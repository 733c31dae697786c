"""Codecs read the output of every client, and stop before memory is exhausted."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.errors import ApiError, Corrupt, ErrorCode
from rookery.records import compression, xerial
from rookery.records.compression import CODECS, GZIP, LZ4, NONE, SNAPPY, ZSTD, Codec

PACKED = [codec for codec in CODECS.values() if codec is not NONE]
TEXT = b'{"user": 4711, "event": "click", "page": "/index.html"}' * 3000
LIMIT = 10 * 1024 * 1024
BIG = bytes(64 * 1024 * 1024)

each_codec = pytest.mark.parametrize("codec", PACKED, ids=lambda codec: codec.name)


def zstd_stream(data: bytes, level: int = 3) -> bytes:
    packer = zstandard.ZstdCompressor(level=level).compressobj()
    return packer.compress(data) + packer.flush()


def lz4_stream(data: bytes) -> bytes:
    packer = lz4.frame.LZ4FrameCompressor(block_linked=True, content_checksum=True)
    parts = (packer.begin(), packer.compress(data[:1000]), packer.compress(data[1000:]))
    return b"".join((*parts, packer.flush()))


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def skippable(data: bytes) -> bytes:
    return b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + data


WRITERS: list[tuple[str, Codec, Callable[[bytes], bytes]]] = [
    ("gzip of the standard library", GZIP, gzip.compress),
    ("gzip in two members", GZIP, lambda d: gzip.compress(d[:99]) + gzip.compress(d[99:])),
    ("gzip with a name", GZIP, lambda d: b"\x1f\x8b\x08\x08" + bytes(6) + b"n\x00" + deflated(d)),
    ("raw snappy", SNAPPY, raw_snappy),
    (
        "two framed snappy streams",
        SNAPPY,
        lambda d: SNAPPY.compress(d[:9]) + SNAPPY.compress(d[9:]),
    ),
    ("lz4 with its size", LZ4, lz4.frame.compress),
    ("lz4 stream, linked, with checksum", LZ4, lz4_stream),
    ("lz4 by another library", LZ4, lambda d: bytes(cramjam.lz4.compress(d))),
    ("two lz4 frames", LZ4, lambda d: lz4.frame.compress(d[:99]) + lz4.frame.compress(d[99:])),
    ("lz4 after a skippable frame", LZ4, lambda d: skippable(lz4.frame.compress(d))),
    ("zstd with its size", ZSTD, zstandard.ZstdCompressor().compress),
    ("zstd stream without a size", ZSTD, zstd_stream),
    ("zstd at level 19", ZSTD, lambda d: zstd_stream(d, level=19)),
    ("zstd by another library", ZSTD, lambda d: bytes(cramjam.zstd.compress(d))),
    ("two zstd frames", ZSTD, lambda d: zstd_stream(d[:99]) + zstd_stream(d[99:])),
    ("zstd after a skippable frame", ZSTD, lambda d: skippable(zstd_stream(d))),
    ("zstd with a checksum", ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress),
]


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(data) + packer.flush()
    return packed + zlib.crc32(data).to_bytes(4, "little") + len(data).to_bytes(4, "little")


@pytest.mark.parametrize(("codec", "write"), [w[1:] for w in WRITERS], ids=[w[0] for w in WRITERS])
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(300_000)], ids=["none", "1", "text", "0s"])
def test_data_compressed_by_other_libraries_is_read(
    codec: Codec, write: Callable[[bytes], bytes], data: bytes
) -> None:
    assert codec.decompress(write(data)) == data


READERS: list[tuple[Codec, Callable[[bytes], bytes]]] = [
    (GZIP, gzip.decompress),
    (LZ4, lz4.frame.decompress),
    (LZ4, lambda d: bytes(cramjam.lz4.decompress(d))),
    (ZSTD, lambda d: zstandard.ZstdDecompressor().decompress(d)),
    (ZSTD, lambda d: bytes(cramjam.zstd.decompress(d))),
]


@pytest.mark.parametrize(("codec", "read"), READERS)
def test_compressed_data_is_read_by_other_libraries(
    codec: Codec, read: Callable[[bytes], bytes]
) -> None:
    assert read(codec.compress(TEXT)) == TEXT


@given(st.sampled_from(list(CODECS.values())), st.binary(max_size=5000), st.integers(1, 40))
def test_compression_round_trips(codec: Codec, data: bytes, times: int) -> None:
    packed = codec.compress(data * times)
    assert codec.decompress(packed, len(data) * times) == data * times
    assert codec.decompress(memoryview(bytearray(packed))) == data * times


@pytest.mark.parametrize("level", [None, 1, 3, 9])
@each_codec
def test_every_level_round_trips(codec: Codec, level: int | None) -> None:
    assert codec.decompress(codec.compress(TEXT, level)) == TEXT


def test_snappy_is_written_in_the_framing_of_java() -> None:
    packed = SNAPPY.compress(TEXT)
    blocks = xerial.blocks(memoryview(packed))
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert [xerial.read_size(block) for block in blocks[:-1]] == [32768] * (len(blocks) - 1)


@each_codec
def test_one_byte_above_the_limit_is_refused(codec: Codec) -> None:
    packed = codec.compress(TEXT)
    assert codec.decompress(packed, len(TEXT)) == TEXT
    with pytest.raises(ApiError, match=rf"{codec.name}.*limit of {len(TEXT) - 1} bytes") as caught:
        codec.decompress(packed, len(TEXT) - 1)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_uncompressed_data_is_limited() -> None:
    with pytest.raises(ApiError, match="none"):
        NONE.decompress(b"123", 2)


BOMBS: list[tuple[str, Codec, Callable[[], bytes]]] = [
    ("gzip", GZIP, lambda: gzip.compress(BIG)),
    ("gzip members", GZIP, lambda: gzip.compress(bytes(2**20)) * 64),
    ("snappy", SNAPPY, lambda: SNAPPY.compress(BIG)),
    ("raw snappy", SNAPPY, lambda: raw_snappy(BIG)),
    ("lz4 with its size", LZ4, lambda: bytes(lz4.frame.compress(BIG))),
    ("lz4", LZ4, lambda: LZ4.compress(BIG)),
    ("lz4 frames", LZ4, lambda: LZ4.compress(bytes(2**20)) * 64),
    ("zstd with its size", ZSTD, lambda: ZSTD.compress(BIG)),
    ("zstd", ZSTD, lambda: zstd_stream(BIG)),
    ("zstd frames", ZSTD, lambda: zstd_stream(bytes(2**20)) * 64),
]


@pytest.mark.parametrize(("codec", "make"), [b[1:] for b in BOMBS], ids=[b[0] for b in BOMBS])
def test_decompression_bomb_stops_at_the_limit(codec: Codec, make: Callable[[], bytes]) -> None:
    bomb = make()
    tracemalloc.start()
    with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
        codec.decompress(bomb, LIMIT)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * LIMIT


LIES: list[tuple[str, Codec, bytes]] = [
    ("snappy that states 4 GiB", SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(20)),
    ("snappy that states too much", SNAPPY, b"\xff\xff\x7f" + raw_snappy(b"abc")[1:]),
    ("snappy without a size", SNAPPY, b"\xff\xff\xff\xff\xff\xff"),
    ("a block of negative length", SNAPPY, xerial.HEADER + b"\xff\xff\xff\xff"),
    ("a block of no length", SNAPPY, xerial.HEADER + bytes(4)),
    ("half a block length", SNAPPY, xerial.HEADER + bytes(2)),
    ("zstd window of 2 GiB", ZSTD, b"\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00"),
    ("zstd size that is a lie", ZSTD, b"\x28\xb5\x2f\xfd\x20\x05\x01\x00\x00"),
    ("zstd with a reserved block", ZSTD, b"\x28\xb5\x2f\xfd\x20\x00\x07\x00\x00"),
    ("zstd of a million empty blocks", ZSTD, b"\x28\xb5\x2f\xfd\x00\x58" + bytes(3_000_000)),
    ("gzip of ten thousand members", GZIP, gzip.compress(b"") * 10_000),
    ("lz4 of ten thousand frames", LZ4, bytes(lz4.frame.compress(b"")) * 10_000),
    ("zstd of ten thousand frames", ZSTD, zstd_stream(b"") * 10_000),
    ("zlib instead of gzip", GZIP, zlib.compress(TEXT)),
]


@pytest.mark.parametrize(("codec", "data"), [i[1:] for i in LIES], ids=[i[0] for i in LIES])
def test_false_lengths_are_corrupt(codec: Codec, data: bytes) -> None:
    with pytest.raises(Corrupt):
        codec.decompress(data)


@each_codec
def test_empty_input_is_corrupt(codec: Codec) -> None:
    with pytest.raises(Corrupt, match=codec.name):
        codec.decompress(b"")


@each_codec
def test_truncated_data_is_corrupt(codec: Codec) -> None:
    packed = codec.compress(TEXT[:40_000])
    ends = [*range(1, 40), *range(len(packed) - 40, len(packed))]
    # Framed snappy has no end mark: cut between two blocks it is just shorter.
    whole = {16, 16 + 4 + len(xerial.blocks(memoryview(packed))[0])} if codec is SNAPPY else set()
    for end in set(ends) - whole:
        with pytest.raises(Corrupt):
            codec.decompress(packed[:end])


@each_codec
@pytest.mark.parametrize("tail", [b"\x00", b"garbage", b"\xff" * 100])
def test_trailing_data_is_corrupt(codec: Codec, tail: bytes) -> None:
    with pytest.raises(Corrupt):
        codec.decompress(codec.compress(TEXT) + tail)


@pytest.mark.parametrize("codec", [GZIP, ZSTD], ids=lambda codec: codec.name)
def test_embedded_checksum_is_verified(codec: Codec) -> None:
    packed = bytearray(
        zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)
        if codec is ZSTD
        else codec.compress(TEXT)
    )
    packed[-1 if codec is ZSTD else -5] ^= 1
    with pytest.raises(Corrupt):
        codec.decompress(packed)


@settings(max_examples=300)
@given(st.sampled_from(PACKED), st.binary(max_size=100), st.data())
def test_damaged_data_raises_only_our_errors(
    codec: Codec, data: bytes, draw: st.DataObject
) -> None:
    packed = bytearray(codec.compress(data * 10))
    packed[draw.draw(st.integers(0, len(packed) - 1))] ^= draw.draw(st.integers(1, 255))
    try:
        result = codec.decompress(packed, 100_000)
    except (Corrupt, ApiError):
        return
    assert len(result) <= 100_000


def test_codecs_have_kafkas_names_and_numbers() -> None:
    names = {codec.id: codec.name for codec in CODECS.values()}
    assert names == {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
    assert compression.find_codec("lz4") is LZ4


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ApiError, match="'brotli'; there are none, gzip, snappy, lz4, zstd"):
        compression.find_codec("brotli")


def test_a_missing_library_is_named() -> None:
    with pytest.raises(ApiError, match="pip install nothing-of-this-name") as caught:
        compression._library("nothing_of_this_name", "nothing-of-this-name")
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
