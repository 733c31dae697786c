"""Every record of the metadata log by type, and how one is framed.

A record's value is the frame's version, the record's type and the record's version, each an
unsigned varint, and then the record itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Final

from rookery.errors import ApiError, Corrupt, ProtocolError
from rookery.wire.buffer import Buffer, FrameReader, write_uvarint
from rookery.wire.codec import decode, encode_bytes
from rookery.wire.kraft import brokers, cluster, security, topics
from rookery.wire.message import Message

FRAME_VERSION: Final = 1


def _records(*modules: ModuleType) -> Iterator[tuple[int, type[Message]]]:
    for module in modules:
        for item in vars(module).values():
            if isinstance(item, type) and issubclass(item, Message) and item.KEY is not None:
                yield item.KEY, item


RECORDS: Final[dict[int, type[Message]]] = dict(
    sorted(_records(brokers, cluster, security, topics), key=lambda entry: entry[0])
)


def read_record(value: Buffer) -> tuple[Message, int]:
    """Read a record of the metadata log; return it and its version.

    Raises:
        Corrupt: the frame or the record is damaged, or newer than we know.
    """
    try:
        return _read(value)
    except ProtocolError as error:
        raise Corrupt(f"a metadata record cannot be read: {error}") from error


def write_record(record: Message, version: int) -> bytes:
    """Write a record of the metadata log, ready to be a record's value."""
    if record.KEY is None or RECORDS.get(record.KEY) is not type(record):
        raise TypeError(f"{type(record).__name__} is not a record of the metadata log")
    body = encode_bytes(record, version)
    out = bytearray()
    for number in (FRAME_VERSION, record.KEY, version):
        write_uvarint(out, number)
    return bytes(out) + body


def _read(value: Buffer) -> tuple[Message, int]:
    reader = FrameReader(value)
    frame, key, version = reader.uvarint(), reader.uvarint(), reader.uvarint()
    if frame != FRAME_VERSION:
        raise Corrupt(f"a metadata record has frame version {frame}; only {FRAME_VERSION} is known")
    if key not in RECORDS:
        raise Corrupt(f"a metadata record has type {key}, which Kafka 4.3 does not define")
    try:
        return decode(RECORDS[key], version, reader.view[reader.position :]), version
    except ApiError as error:
        raise Corrupt(f"a metadata record is newer than we know: {error.text}") from error
