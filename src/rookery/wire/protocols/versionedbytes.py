"""Bytes that begin with a 16-bit version, as Kafka stores a message outside of a request."""

from __future__ import annotations

from typing import Final, TypeVar

from rookery.errors import ProtocolError
from rookery.wire.buffer import Buffer, FrameReader, write_i16
from rookery.wire.codec import decode, decode_at, encode_bytes
from rookery.wire.message import Message

M = TypeVar("M", bound=Message)

PREFIX_BYTES: Final = 2


def read_prefix(buffer: Buffer) -> int:
    """Return the version that stands first.

    Raises:
        ProtocolError: there are not even two bytes.
    """
    return FrameReader(buffer).i16()


def read_exactly(message: type[M], buffer: Buffer) -> tuple[M, int]:
    """Read a message that fills the rest of the buffer; return it and its version.

    Raises:
        ProtocolError: the bytes are no such message.
        ApiError: UNSUPPORTED_VERSION, if we have no definition of its version.
    """
    version = read_prefix(buffer)
    return decode(message, version, memoryview(buffer)[PREFIX_BYTES:]), version


def read_leniently(message: type[M], buffer: Buffer, start: int = PREFIX_BYTES) -> tuple[M, int]:
    """Read a message of any version; return it and the version that it says it has.

    A version newer than ours is read as the newest that we know, and what follows is ignored: new
    versions of such messages only ever add fields at the end.

    Args:
        message: the message's class.
        buffer: the version, then the message.
        start: where the message begins; 0, if the version is its own first field.

    Raises:
        ProtocolError: the bytes are no such message, or the version is negative.
    """
    version = read_prefix(buffer)
    if version < 0:
        raise ProtocolError(f"{message.__name__} has version {version}; versions start at 0")
    body, _ = decode_at(message, min(version, newest(message)), buffer, start)
    return body, version


def write(message: Message, version: int) -> bytes:
    """Write the version, then the message in that version."""
    out = bytearray()
    write_i16(out, version)
    out += encode_bytes(message, version)
    return bytes(out)


def newest(message: type[Message]) -> int:
    """Return the newest version that we have a definition of."""
    if message.VERSIONS is None:
        raise TypeError(f"{message.__name__} is a part of a message and has no versions")
    return message.VERSIONS[-1]
