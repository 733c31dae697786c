"""The compression codecs of batches. To add one, add a row to `CODECS` with its attribute bits.

All decompressed output is bounded. Sizes that the input states are checked before memory is
allocated. Where no size is stated, the output is produced and counted in pieces. Compressed data
can expand by a factor of 32 000.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from rookery.errors import ApiError, Corrupt, Error, ErrorCode
from rookery.records import heap, xerial, zstdframe
from rookery.records.kernel import Buffer

if TYPE_CHECKING:
    from zstandard import ZstdDecompressor

DEFAULT_LIMIT = 128 * 1024 * 1024
"""The maximum decompressed size of one batch, if the caller sets none."""

# Every client writes one frame. Each costs a decompressor's set-up, so a million would be an
# attack.
_MAX_FRAMES = 1024
# The maximum window of a decompressor, the same as in Java and the zstd tool.
_MAX_WINDOW = 128 * 1024 * 1024
_PIECE = 256 * 1024
_LARGE_PIECE = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Codec:
    """A codec: its id in batches, its name in configs, and its two functions."""

    id: int
    name: str
    expansion: int
    """The maximum ratio of output to input size that the format allows."""
    _compress: Callable[[Buffer, int | None], bytes]
    _decompress: Callable[[memoryview, int], bytes | bytearray]

    def compress(self, data: Buffer, level: int | None = None) -> bytes:
        """Compress into a format that every Kafka client reads; levels are the library's own."""
        return self._compress(data, level)

    def decompress(self, data: Buffer, limit: int = DEFAULT_LIMIT) -> bytes | bytearray:
        """Decompress the output of any Kafka client, to at most `limit` bytes.

        Raises:
            Corrupt: the data is damaged, truncated, or followed by other bytes.
            ApiError: the output would exceed the limit, or the library is missing.
        """
        try:
            opened = self._decompress(memoryview(data).cast("B"), limit)
        except _TooLong:
            opened = None
        except Error:
            raise
        except Exception as error:
            # Each library has its own classes for this, and some raise plain RuntimeErrors.
            raise Corrupt(
                f"{self.name}: {len(data)} bytes cannot be decompressed: {error}"
            ) from error
        # Here, because the exception that kept the pieces alive is no longer referenced.
        if opened is None or len(opened) >= heap.LARGE:
            heap.give_back()
        if opened is None:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{self.name}: {len(data)} bytes become more than the limit of {limit} bytes",
            )
        return opened


def find_codec(name: str) -> Codec:
    """Find a codec by its name in configs (`none`, `gzip`, `snappy`, `lz4`, `zstd`)."""
    for codec in CODECS.values():
        if codec.name == name:
            return codec
    names = ", ".join(codec.name for codec in CODECS.values())
    raise ApiError(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec is named {name!r}; there are {names}"
    )


class _TooLong(Exception):  # noqa: N818
    """The output would exceed the limit."""


class _Output:
    """Counted output in growing memory, so that pieces and the whole never exist together."""

    __slots__ = ("_first", "_rest", "left")

    def __init__(self, limit: int) -> None:
        self.left = limit
        self._first = b""
        self._rest: bytearray | None = None

    def add(self, piece: bytes) -> None:
        self.left -= len(piece)
        if self.left < 0:
            raise _TooLong
        if self._rest is not None:
            self._rest += piece
        elif self._first:
            self._rest = bytearray(self._first)
            self._rest += piece
            self._first = b""
        else:
            self._first = piece

    def expect(self, size: int) -> None:
        if size > self.left:
            raise _TooLong

    def whole(self) -> bytes | bytearray:
        return self._first if self._rest is None else self._rest


def _library(module: str, package: str) -> ModuleType:
    try:
        return _imported(module)
    except ImportError as error:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"{package} is not installed ({error}); run `pip install {package}`",
        ) from error


_imported = cache(import_module)


@cache
def _gzip_library() -> ModuleType:
    # Both have the same functions; isal compresses ten times faster.
    try:
        return import_module("isal.isal_zlib")
    except ImportError:
        return zlib


def _too_many_frames() -> Corrupt:
    return Corrupt(f"more than {_MAX_FRAMES} compressed frames follow each other in one batch")


def _copy(data: Buffer, _level: int | None) -> bytes:
    return bytes(data)


def _copy_back(data: memoryview, limit: int) -> bytes:
    if len(data) > limit:
        raise _TooLong
    return bytes(data)


def _gzip(data: Buffer, level: int | None) -> bytes:
    library = _gzip_library()
    if level is not None and library is not zlib and level > library.Z_BEST_COMPRESSION:
        library = zlib
    default: int = library.Z_DEFAULT_COMPRESSION
    packed: bytes = library.compress(data, default if level is None else level, wbits=31)
    return packed


def _gunzip(data: memoryview, limit: int) -> bytes | bytearray:
    output = _Output(limit)
    at = 0
    for index in range(_MAX_FRAMES):
        at = _gunzip_member(data, at, index, output)
        if at == len(data):
            return output.whole()
    raise _too_many_frames()


def _gunzip_member(data: memoryview, at: int, index: int, output: _Output) -> int:
    member = _gzip_library().decompressobj(wbits=31)
    # A member's leftover input is copied, so only the first member gets all input at once.
    piece = len(data) if index == 0 else _PIECE
    while at < len(data) and not member.eof:
        rest: memoryview | bytes = data[at : at + piece]
        at += len(rest)
        while rest and not member.eof:
            output.add(member.decompress(rest, output.left + 1))
            rest = member.unconsumed_tail
    if not member.eof:
        raise ValueError("it is cut off")
    return at - len(member.unused_data)


def _snappy(data: Buffer, _level: int | None) -> bytes:
    library = _library("cramjam", "cramjam").snappy
    view = memoryview(data).cast("B")
    parts = [xerial.HEADER]
    for at in range(0, len(view), xerial.BLOCK_SIZE):
        block = bytes(library.compress_raw(view[at : at + xerial.BLOCK_SIZE]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _unsnappy(data: memoryview, limit: int) -> bytes | bytearray:
    library = _library("cramjam", "cramjam").snappy
    output = _Output(limit)
    for block in xerial.blocks(data) if xerial.is_framed(data) else [data]:
        output.expect(xerial.read_size(block))
        output.add(bytes(library.decompress_raw(block)))
    return output.whole()


def _lz4(data: Buffer, level: int | None) -> bytes:
    library = _library("lz4.frame", "lz4")
    # Java's reader supports neither linked blocks nor a wrong stated size.
    packed: bytes = library.compress(
        data, compression_level=level or 0, block_linked=False, store_size=False
    )
    return packed


def _unlz4(data: memoryview, limit: int) -> bytes | bytearray:
    library = _library("lz4.frame", "lz4")
    output = _Output(limit)
    at = 0
    for _ in range(_MAX_FRAMES):
        at = _unlz4_frame(library, data, at, output)
        if at == len(data):
            return output.whole()
    raise _too_many_frames()


def _unlz4_frame(library: ModuleType, data: memoryview, at: int, output: _Output) -> int:
    context = library.create_decompression_context()
    # The library allocates the memory for a whole piece, and no input expands by more than 255.
    size = min(max(_PIECE, 4 * len(data)), 255 * len(data), _LARGE_PIECE)
    is_end = False
    while not is_end:
        room = min(size, output.left + 1)
        piece, used, is_end = library.decompress_chunk(context, data[at:], max_length=room)
        output.add(piece)
        at += used
        if not is_end and not piece and (not used or at == len(data)):
            raise ValueError("it is cut off")
    return at


def _zstd(data: Buffer, level: int | None) -> bytes:
    library = _library("zstandard", "zstandard")
    packed: bytes = library.ZstdCompressor(level=3 if level is None else level).compress(data)
    return packed


def _unzstd(data: memoryview, limit: int) -> bytes | bytearray:
    library = _library("zstandard", "zstandard").ZstdDecompressor(max_window_size=_MAX_WINDOW)
    output = _Output(limit)
    at = 0
    for _ in range(_MAX_FRAMES):
        skipped = zstdframe.skippable(data, at)
        at = at + skipped if skipped else _unzstd_frame(library, data, at, output)
        if at == len(data):
            return output.whole()
    raise _too_many_frames()


def _unzstd_frame(library: ZstdDecompressor, data: memoryview, at: int, output: _Output) -> int:
    frame = zstdframe.frame(data, at)
    output.expect(frame.content_size or 0)
    if frame.window > _MAX_WINDOW:
        raise ValueError(f"its window is {frame.window} bytes; at most {_MAX_WINDOW} are allowed")
    unpacker = library.decompressobj()
    end, most = at, 0
    for step in zstdframe.steps(data, frame, output.left):
        if most and most + step.most > output.left:
            output.add(unpacker.decompress(data[at:end]))
            at, most = end, 0
        end, most = step.end, most + step.most
    output.add(unpacker.decompress(data[at:end]))
    if not unpacker.eof:
        raise ValueError("it is cut off")
    return end


# Expansion: deflate copies 258 bytes by 2 bits, snappy 64 bytes by 3 bytes, each further byte of an
# lz4 length adds 255, and a zstd block of 4 bytes becomes 128 KiB.
NONE = Codec(0, "none", 1, _copy, _copy_back)
GZIP = Codec(1, "gzip", 1032, _gzip, _gunzip)
SNAPPY = Codec(2, "snappy", 22, _snappy, _unsnappy)
LZ4 = Codec(3, "lz4", 255, _lz4, _unlz4)
ZSTD = Codec(4, "zstd", 32_768, _zstd, _unzstd)

CODECS = {codec.id: codec for codec in (NONE, GZIP, SNAPPY, LZ4, ZSTD)}
