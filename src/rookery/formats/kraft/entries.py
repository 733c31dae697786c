"""Reads and writes the batches of `__cluster_metadata` and of its snapshots.

A batch holds either control records of the quorum or metadata records. A record whose type or
version is newer than supported is skipped by its length. Its `message` is None, and its bytes are
not interpreted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from rookery.errors import Corrupt, ProtocolError
from rookery.model.control import ControlRecordType
from rookery.records import recordcodec
from rookery.records.batches import BatchHeader
from rookery.records.kernel import Buffer
from rookery.records.recordcodec import BatchSettings, Record
from rookery.wire import control
from rookery.wire.buffer import FrameReader
from rookery.wire.kraft.brokers import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from rookery.wire.kraft.catalog import FRAME_VERSION, RECORDS, read_record, write_record
from rookery.wire.kraft.topics import PartitionChangeRecord, PartitionRecord
from rookery.wire.message import Message

CLUSTER_METADATA: Final = "__cluster_metadata"
METADATA_FOLDER: Final = "__cluster_metadata-0"
METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
"""The id of the metadata topic in every cluster."""


class MetadataEntry(NamedTuple):
    """A record of the metadata log; `message` is None if its type or version is unknown."""

    offset: int
    epoch: int
    timestamp: int
    type: int
    version: int
    message: Message | None


class ControlEntry(NamedTuple):
    """A control record of the metadata log; `message` is None if its type or version is unknown."""

    offset: int
    epoch: int
    type: ControlRecordType | None
    message: Message | None


def read_batch(batch: Buffer, header: BatchHeader) -> Iterator[MetadataEntry | ControlEntry]:
    """Read the records of a batch that has been checked.

    Args:
        batch: the bytes of that batch alone.
        header: its header.

    Raises:
        Corrupt: a record cannot be read; the text names its offset.
    """
    for record in recordcodec.read(batch, header._replace(position=0)):
        try:
            yield _control(record, header) if header.is_control else _entry(record, header)
        except (Corrupt, ProtocolError) as error:
            raise Corrupt(f"offset {record.offset}: {error}") from error


def _control(record: Record, header: BatchHeader) -> ControlEntry:
    epoch = header.partition_leader_epoch
    type_ = control.read_key(record.key or b"")
    if type_ is None:
        return ControlEntry(record.offset, epoch, None, None)
    return ControlEntry(record.offset, epoch, type_, control.read_value(type_, record.value or b""))


def _entry(record: Record, header: BatchHeader) -> MetadataEntry:
    value = record.value or b""
    reader = FrameReader(value)
    frame, type_, version = reader.uvarint(), reader.uvarint(), reader.uvarint()
    if frame != FRAME_VERSION:
        raise Corrupt(f"a metadata record has frame version {frame}; only {FRAME_VERSION} is known")
    known = RECORDS.get(type_)
    is_known = known is not None and known.VERSIONS is not None and version in known.VERSIONS
    message = read_record(value)[0] if is_known else None
    epoch = header.partition_leader_epoch
    return MetadataEntry(record.offset, epoch, record.timestamp, type_, version, message)


def pack_batch(
    messages: Iterable[tuple[Message, int]], base_offset: int, epoch: int, timestamp: int
) -> bytes:
    """Write metadata records, each with its version, as one batch of the log."""
    rows = (
        Record(None, write_record(message, version), (), timestamp) for message, version in messages
    )
    settings = BatchSettings(base_offset=base_offset, partition_leader_epoch=epoch)
    return recordcodec.build(rows, settings)


def pack_control(
    messages: Iterable[tuple[ControlRecordType, Message]],
    base_offset: int,
    epoch: int,
    timestamp: int,
) -> bytes:
    """Write control records of the quorum as one batch of the log."""
    rows = (
        Record(control.write_key(type_), control.write_value(message), (), timestamp)
        for type_, message in messages
    )
    settings = BatchSettings(base_offset=base_offset, partition_leader_epoch=epoch, is_control=True)
    return recordcodec.build(rows, settings)


def version_for(message: Message, metadata_version: int) -> int:
    """Return the version in which Kafka writes a record at a level of `metadata.version`."""
    if message.KEY is None or RECORDS.get(message.KEY) is not type(message):
        raise TypeError(f"{type(message).__name__} is not a record of the metadata log")
    steps = _VERSIONS.get(message.KEY, ())
    return sum(metadata_version >= level for level in steps)


_VERSIONS: Final[dict[int, tuple[int, ...]]] = {
    RegisterBrokerRecord.KEY or 0: (7, 8, 17, 30),  # 3.3-IV3, 3.4-IV0, 3.7-IV2, 4.3-IV0
    BrokerRegistrationChangeRecord.KEY or 0: (7, 17, 30),
    PartitionRecord.KEY or 0: (17, 23),  # 3.7-IV2, 4.0-IV1
    PartitionChangeRecord.KEY or 0: (17, 23),
}
"""By record type: the levels of `metadata.version` at which its version increases by one."""
