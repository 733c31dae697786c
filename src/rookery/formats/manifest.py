"""The head of a shared object: its contents, and the outcome of the writer's earlier objects.

    magic "RKOB", version, length, CRC-32C of the manifest ─ manifest ─ batches, end to end

The cluster log has the positions of batches, and readers use only the log. The manifest is for the
case that the log is lost: snapshots and manifests in a store are sufficient to rebuild it. The
offsets of a batch are assigned after its object was written. They are therefore in a later object
of the same writer, or in a small object of their own. The same holds for the ends of transactions:
their markers have no bytes until they are rewritten.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from rookery.errors import Corrupt, ProtocolError
from rookery.records.crc import checksum
from rookery.wire.buffer import Buffer
from rookery.wire.codec import decode, encode_bytes
from rookery.wire.message import (
    GroupId,
    Message,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicName,
    field,
    i8,
    i16,
    i32,
    i64,
)

MAGIC: Final = b"RKOB"
VERSION: Final = 0
_HEAD: Final = Struct(">4sHHII")  # magic, version, zero, length of the manifest, its CRC
HEAD_BYTES: Final = _HEAD.size
MAX_MANIFEST_BYTES: Final = 64 * 1024 * 1024


class Manifest(Message, versions=range(1), flexible=0):
    """The contents of a shared object."""

    object_id: i64
    created_ms: i64
    seen: i64  # the last entry of the cluster log that the writer had applied
    topics: list[ManifestTopic]
    extents: list[ManifestExtent]  # in the order of their bytes
    earlier: list[EarlierObject]
    ends: list[TransactionEnd] = field(tag=0, factory=list)
    sinks: list[ManifestSink] = field(tag=1, factory=list)
    staged_for: str = field(tag=2, default="")  # the sink's batch it was written for, if any


class ManifestTopic(Message):
    """A topic that extents belong to."""

    topic_id: TopicId
    name: TopicName
    partitions: i32


class ManifestExtent(Message):
    """A batch as it was sent, or final rows that were merged."""

    topic: i32  # its index in the list of topics
    partition: PartitionId
    size: i32
    kind: i8
    base_offset: Offset  # of final rows; -1: not assigned yet
    records: i32  # the number of offsets it takes
    attributes: i16
    max_timestamp: i64
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: i32


class EarlierObject(Message):
    """The outcome of an earlier object's batches, in the order of its extents."""

    object_id: i64
    base_offsets: list[Offset]  # -1: rejected, or a duplicate
    append_times: list[i64]  # -1: the producers' times are valid


class TransactionEnd(Message):
    """A transaction that the writer had ended, or had seen expire, before it wrote this object."""

    entry: i64  # the entry of the cluster log in which it ended
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    is_commit: bool
    markers: list[EndMarker]
    offsets: list[EndOffset]


class EndMarker(Message):
    """The marker in one partition."""

    topic: i32  # its place in the manifest's list of topics
    partition: PartitionId
    first_offset: Offset  # of the transaction here; the marker's own if there are no records
    offset: Offset
    last_sequence: i32  # of its records here; -1 if there are none
    time_ms: i64
    is_append_time: bool


class EndOffset(Message):
    """A group's committed offset that was part of the transaction."""

    group_id: GroupId
    topic: i32  # its place in the manifest's list of topics
    partition: PartitionId
    offset: Offset
    leader_epoch: i32
    commit_ms: i64
    retention_ms: i64
    metadata: str


class ManifestSink(Message):
    """The last batch of a sink that the writer had committed."""

    sink_id: str
    query_id: str
    batch_id: i64
    source_offsets: str
    entry: i64  # the entry of the cluster log that committed it
    stamp_ms: i64


def write_head(manifest: Manifest) -> bytes:
    """Write the head of an object; its batches follow immediately."""
    body = encode_bytes(manifest, VERSION)
    return _HEAD.pack(MAGIC, VERSION, 0, len(body), checksum(body)) + body


def manifest_length(head: Buffer) -> int:
    """Return the length of head and manifest together, from an object's first `HEAD_BYTES`.

    Raises:
        Corrupt: it is not a shared object, or was written by a newer version.
    """
    return HEAD_BYTES + _length(head)


def read_head(data: Buffer) -> tuple[Manifest, int]:
    """Read the head of an object; return the manifest and the position of the batches.

    Raises:
        Corrupt: it is not a shared object, it is damaged, or it ends too early.
    """
    length = _length(data)
    body = memoryview(data)[HEAD_BYTES : HEAD_BYTES + length]
    if len(body) < length:
        raise Corrupt(f"a shared object ends within its manifest of {length} bytes")
    if checksum(body) != _HEAD.unpack_from(data)[4]:
        raise Corrupt("the manifest of a shared object is damaged (the checksum is wrong)")
    try:
        return decode(Manifest, VERSION, body), HEAD_BYTES + length
    except ProtocolError as error:
        raise Corrupt(f"the manifest of a shared object cannot be read: {error}") from error


def _length(head: Buffer) -> int:
    if len(head) < HEAD_BYTES:
        raise Corrupt(f"a shared object ends after {len(head)} bytes, within its head")
    magic, version, _, length, _ = _HEAD.unpack_from(head)
    if magic != MAGIC:
        raise Corrupt(f"an object begins with {bytes(magic)!r}, so it is not a shared object")
    if version != VERSION:
        raise Corrupt(f"a shared object has version {version}; this program reads {VERSION}")
    if length > MAX_MANIFEST_BYTES:
        raise Corrupt(f"a manifest of {length} bytes: the bound is {MAX_MANIFEST_BYTES}")
    return int(length)
