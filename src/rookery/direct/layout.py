"""Builds one object from rows: batches by topic and partition, after a manifest.

Adjacent batches of one partition form a run, which becomes one row of the log. A run is limited to
the size of a row, so that a reader of one offset scans little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rookery.direct.partitioner import RowPartitioner
from rookery.direct.targets import TopicTarget
from rookery.errors import ApiError, ConfigError, ErrorCode
from rookery.formats.manifest import Manifest, ManifestExtent, ManifestTopic, write_head
from rookery.records import murmur
from rookery.records.batches import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, parse
from rookery.records.columns import encode
from rookery.records.compression import CODECS, Codec
from rookery.records.crc import checksum
from rookery.records.writing import WriteSettings

MAX_RUN_BYTES: Final = 1024 * 1024
"""The maximum size of a run that holds more than one batch."""
MAX_RECORD_BYTES: Final = 64 * 1024 * 1024
"""The maximum size of a record before compression."""
_RECORD_COLUMNS: Final = ("key", "value", "headers", "timestamp")


@dataclass(frozen=True, slots=True)
class PackSettings:
    """How rows become batches and objects."""

    topic: str = ""
    """The topic of all rows; empty: the column `topic` names it."""
    compression: str = "none"
    stamps: bool = True
    """Whether rows without a timestamp get the current time; otherwise they stay without one."""
    batch_bytes: int = 1_000_000
    """The maximum size of a batch; a larger record gets a batch of its own."""
    object_bytes: int = 16 * 1024 * 1024
    """The approximate size of the rows in one object."""
    uploads: int = 2
    """The number of objects that are built and uploaded concurrently."""

    def __post_init__(self) -> None:
        find_codec(self.compression)
        if not 1024 <= self.batch_bytes <= MAX_RECORD_BYTES:
            raise ConfigError(f"batchBytes={self.batch_bytes}: must be from 1 KiB to 64 MiB")
        if not 64 * 1024 <= self.object_bytes <= 512 * 1024 * 1024:
            raise ConfigError(f"objectBytes={self.object_bytes}: must be from 64 KiB to 512 MiB")
        if not 1 <= self.uploads <= 64:
            raise ConfigError(f"uploads={self.uploads}: must be from 1 to 64")


class PackedRun(NamedTuple):
    """Adjacent batches of one partition."""

    topic_id: bytes
    partition: int
    size: int
    records: int
    max_timestamp: int
    attributes: int


class BuiltObject(NamedTuple):
    """An object that is ready to be stored."""

    object_id: int
    parts: list[bytes | bytearray]
    begin: int
    """The position of the first run."""
    runs: list[PackedRun]
    rows: int
    size: int
    crc: int
    """Covers the head and the headers of all batches, which hold the checksums of the rest."""


class Stamp(NamedTuple):
    """Metadata of an object: its id, creation time, the writer's applied entry and the batch."""

    object_id: int
    now_ms: int
    seen: int
    staged_for: str = ""


def find_codec(name: str) -> Codec:
    """Return the codec with a name.

    Raises:
        ConfigError: there is no codec with that name.
    """
    for codec in CODECS.values():
        if codec.name == name:
            return codec
    names = ", ".join(codec.name for codec in CODECS.values())
    raise ConfigError(f"compression={name!r}: there are {names}")


def build(
    rows: pa.RecordBatch,
    targets: Mapping[str, TopicTarget],
    packing: PackSettings,
    partitioner: RowPartitioner,
    stamp: Stamp,
) -> BuiltObject:
    """Build an object from rows; the rows of a partition keep their order.

    Raises:
        ApiError: a row cannot become a record of its topic; the text names topic and partition.
    """
    runs: list[PackedRun] = []
    batches: list[bytearray] = []
    for target, part in _by_topic(rows, targets, packing.topic):
        for partition, some in _by_partition(part, target, partitioner):
            made = list(_batches(some, target, partition, packing, stamp.now_ms))
            runs += _runs(made, target, partition)
            batches += made
    head = write_head(_manifest(runs, targets, stamp))
    crc = checksum(head)
    for batch in batches:
        # A batch's header holds the checksum of everything after it.
        crc = checksum(memoryview(batch)[:HEADER_SIZE], crc)
    size = len(head) + sum(map(len, batches))
    return BuiltObject(stamp.object_id, [head, *batches], len(head), runs, rows.num_rows, size, crc)


def _by_topic(
    rows: pa.RecordBatch, targets: Mapping[str, TopicTarget], topic: str
) -> Iterator[tuple[TopicTarget, pa.RecordBatch]]:
    if topic:
        yield targets[topic], rows
        return
    names = rows.column("topic")
    topics = [str(name) for name in names.unique().to_pylist()]
    if len(topics) == 1:
        yield targets[topics[0]], rows
        return
    for name in topics:
        yield targets[name], rows.filter(pc.equal(names, pa.scalar(name)))


def _by_partition(
    rows: pa.RecordBatch, target: TopicTarget, partitioner: RowPartitioner
) -> Iterator[tuple[int, pa.RecordBatch]]:
    chosen = partitioner.choose(rows, target.name, target.partitions)
    order, sizes = murmur.gather(chosen, target.partitions)
    kept = rows.select([name for name in _RECORD_COLUMNS if name in rows.schema.names])
    if max(sizes) < rows.num_rows:
        kept = kept.take(
            pa.Array.from_buffers(pa.int64(), rows.num_rows, [None, pa.py_buffer(order)])
        )
    at = 0
    for partition, size in enumerate(sizes):
        if size:
            yield partition, kept.slice(at, size)
            at += size


def _batches(
    rows: pa.RecordBatch, target: TopicTarget, partition: int, packing: PackSettings, now_ms: int
) -> Iterator[bytearray]:
    where = f"topic {target.name} partition {partition}"
    _check_rows(rows, target, where, now_ms)
    codec = find_codec(target.codec or packing.compression)
    writing = WriteSettings(
        codec=codec,
        max_batch_bytes=min(packing.batch_bytes, target.max_message_bytes),
        max_record_bytes=_most(target, codec),
        timestamp_ms=now_ms if packing.stamps else NO_TIMESTAMP,
    )
    try:
        for batch in encode(rows, writing):
            _check_size(batch, target, codec)
            yield batch
    except ApiError as error:
        more = ""
        if error.code is ErrorCode.MESSAGE_TOO_LARGE:
            more = _advice(writing, target)
        raise ApiError(error.code, f"{where}: {error.text}{more}") from error


def _most(target: TopicTarget, codec: Codec) -> int:
    """Return the maximum record size before compression: the limit applies to the stored size."""
    return MAX_RECORD_BYTES if codec.id else min(target.max_message_bytes, MAX_RECORD_BYTES)


def _check_size(batch: bytearray, target: TopicTarget, codec: Codec) -> None:
    if len(batch) > target.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE, f"a record alone makes {len(batch)} bytes by {codec.name}"
        )


def _advice(writing: WriteSettings, target: TopicTarget) -> str:
    limit = target.max_message_bytes
    if limit > writing.max_record_bytes:
        return f"; without a broker, records have at most {MAX_RECORD_BYTES} bytes"
    return f"; the topic's max.message.bytes is {limit}: raise it, or choose a compression"


def _check_rows(rows: pa.RecordBatch, target: TopicTarget, where: str, now_ms: int) -> None:
    """Reject rows that the topic's settings forbid."""
    names = rows.schema.names
    missing = rows.column("key").null_count if "key" in names else rows.num_rows
    if target.is_compacted and missing:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"{where}: {missing} rows have no key, and the topic is compacted, which needs keys",
        )
    if target.is_append_time or "timestamp" not in names:
        return
    times = rows.column("timestamp").cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
    if times.null_count == len(times):
        return
    first, last = pc.min(times).as_py(), pc.max(times).as_py()
    if last - now_ms > target.after_max_ms:
        raise _bad_time(where, last, "after", target.after_max_ms)
    if now_ms - first > target.before_max_ms:
        raise _bad_time(where, first, "before", target.before_max_ms)


def _bad_time(where: str, time_ms: int, name: str, limit: int) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_TIMESTAMP,
        f"{where}: a row's time is {time_ms} ms since 1970, and the topic's "
        f"message.timestamp.{name}.max.ms is {limit}",
    )


def _runs(batches: Iterable[bytearray], target: TopicTarget, partition: int) -> list[PackedRun]:
    runs: list[PackedRun] = []
    for batch in batches:
        header = parse(batch)
        last = runs[-1] if runs else None
        if last is not None and last.size + len(batch) <= MAX_RUN_BYTES:
            runs[-1] = last._replace(
                size=last.size + len(batch),
                records=last.records + header.last_offset_delta + 1,
                max_timestamp=max(last.max_timestamp, header.max_timestamp),
            )
        else:
            runs.append(_run(header, len(batch), target, partition))
    return runs


def _run(header: BatchHeader, size: int, target: TopicTarget, partition: int) -> PackedRun:
    records = header.last_offset_delta + 1
    return PackedRun(
        target.topic_id, partition, size, records, header.max_timestamp, header.attributes
    )


def _manifest(runs: list[PackedRun], targets: Mapping[str, TopicTarget], stamp: Stamp) -> Manifest:
    places: dict[bytes, int] = {}
    extents = [_extent(places.setdefault(run.topic_id, len(places)), run) for run in runs]
    known = {target.topic_id: target for target in targets.values()}
    return Manifest(
        object_id=stamp.object_id,
        created_ms=stamp.now_ms,
        seen=stamp.seen,
        topics=[
            ManifestTopic(
                topic_id=place, name=known[place].name, partitions=known[place].partitions
            )
            for place in places
        ],
        extents=extents,
        earlier=[],
        staged_for=stamp.staged_for,
    )


def _extent(topic: int, run: PackedRun) -> ManifestExtent:
    return ManifestExtent(
        topic=topic, partition=run.partition, size=run.size, kind=0, base_offset=-1,
        records=run.records, attributes=run.attributes, max_timestamp=run.max_timestamp,
        producer_id=-1, producer_epoch=-1, base_sequence=-1,
    )  # fmt: skip
