"""Records inside a batch: reading them, building batches, and control markers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from rookery.errors import ApiError, Corrupt, ErrorCode
from rookery.model.control import ControlRecordType
from rookery.records import batches, kernel
from rookery.records.batches import BatchHeader
from rookery.records.compression import DEFAULT_LIMIT, NONE, Codec
from rookery.records.kernel import Buffer


class Record(NamedTuple):
    """One record. In a new batch, offset -1 means the offset after the previous record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = -1
    offset: int = -1


class BatchContents(NamedTuple):
    """The result of a walk over a batch's records, without creating record objects.

    Records without a time (-1) do not count as the earliest.
    """

    min_timestamp: int
    max_timestamp: int
    offset_of_max_timestamp: int
    null_keys: int

    def check_times(self, now_ms: int, before_ms: int, after_ms: int) -> None:
        """Reject records too far from now (`message.timestamp.before.max.ms`, `after`).

        Raises:
            ApiError: INVALID_TIMESTAMP, like Kafka for topics with CreateTime.
        """
        earliest, latest = now_ms - before_ms, now_ms + after_ms
        for time in (self.min_timestamp, self.max_timestamp):
            if time != batches.NO_TIMESTAMP and not earliest <= time <= latest:
                raise ApiError(
                    ErrorCode.INVALID_TIMESTAMP,
                    f"a record's time {time} is not between {earliest} and {latest}",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """The properties of a new batch in addition to its records."""

    codec: Codec = NONE
    level: int | None = None
    base_offset: int = 0
    partition_leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    is_control: bool = False

    @property
    def attributes(self) -> int:
        """The attribute bits of the header."""
        bits = batches.TRANSACTIONAL if self.is_transactional else 0
        return bits | (batches.CONTROL if self.is_control else 0) | self.codec.id


PLAIN = BatchSettings()


def payload(batch: Buffer, header: BatchHeader, limit: int = DEFAULT_LIMIT) -> Buffer:
    """Return the bytes of the records, decompressed if necessary, else as a view."""
    body = memoryview(batch)[header.position + batches.HEADER_SIZE : header.end]
    codec = header.codec
    # Compaction leaves batches without records, which have nothing to decompress.
    if codec is NONE or header.record_count == 0:
        return body
    return codec.decompress(body, limit)


def read(batch: Buffer, header: BatchHeader, limit: int = DEFAULT_LIMIT) -> Iterator[Record]:
    """Iterate over the records of a checked batch; each is created on demand.

    Raises:
        Corrupt: a record does not match its lengths.
        ApiError: the decompressed records would exceed the limit.
    """
    return kernel.decode(payload(batch, header, limit), header, Record)


def read_all(records: Buffer, limit: int = DEFAULT_LIMIT) -> Iterator[Record]:
    """Iterate over the records of all batches that a broker sent, without markers."""
    for header in batches.check_fetched(records):
        if not header.is_control:
            yield from read(records, header, limit)


def inspect(batch: Buffer, header: BatchHeader, limit: int = DEFAULT_LIMIT) -> BatchContents:
    """Check every record that a producer sent, including its headers.

    Raises:
        ApiError: INVALID_RECORD if one is broken, MESSAGE_TOO_LARGE if they exceed the limit.
    """
    try:
        return BatchContents(*kernel.walk(payload(batch, header, limit), header))
    except Corrupt as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error


def build(records: Iterable[Record], settings: BatchSettings = PLAIN) -> bytes:
    """Build a batch; the base timestamp is the first record's.

    Raises:
        ValueError: there are no records, or their offsets do not increase.
    """
    body, count, last_delta, first, highest = kernel.encode(records, settings.base_offset)
    if not count:
        raise ValueError("a batch needs a record")
    header = BatchHeader(
        base_offset=settings.base_offset,
        batch_length=0,
        partition_leader_epoch=settings.partition_leader_epoch,
        magic=batches.MAGIC,
        crc=0,
        attributes=settings.attributes,
        last_offset_delta=last_delta,
        base_timestamp=first,
        max_timestamp=highest,
        producer_id=settings.producer_id,
        producer_epoch=settings.producer_epoch,
        base_sequence=settings.base_sequence,
        record_count=count,
    )
    packed = body if settings.codec is NONE else settings.codec.compress(body, settings.level)
    return batches.seal(header, packed) + packed


class Control(NamedTuple):
    """A control record: its type, and for an end of transaction the coordinator's epoch."""

    type: ControlRecordType | int
    coordinator_epoch: int | None


_CONTROL_KEY = Struct(">hh")
_MARKER = Struct(">hi")


def build_marker(
    outcome: ControlRecordType,
    coordinator_epoch: int,
    settings: BatchSettings,
    timestamp: int,
) -> bytes:
    """Build the batch that ends a producer's transaction."""
    if outcome not in {ControlRecordType.ABORT, ControlRecordType.COMMIT}:
        raise ValueError(f"{outcome.name} does not end a transaction")
    record = Record(
        _CONTROL_KEY.pack(0, outcome), _MARKER.pack(0, coordinator_epoch), (), timestamp
    )
    return build_control(record, settings)


def build_control(record: Record, settings: BatchSettings) -> bytes:
    """Build a control batch around an existing record."""
    # A marker has no sequence, and Kafka never compresses one.
    bits = BatchSettings(
        base_offset=settings.base_offset,
        partition_leader_epoch=settings.partition_leader_epoch,
        producer_id=settings.producer_id,
        producer_epoch=settings.producer_epoch,
        is_transactional=settings.producer_id >= 0,
        is_control=True,
    )
    return build([record], bits)


def control(record: Record) -> Control:
    """Parse a record of a control batch.

    Raises:
        Corrupt: its key or value is too short.
    """
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise Corrupt(f"the control record at offset {record.offset} has no type in its key")
    _, number = _CONTROL_KEY.unpack_from(record.key)
    if number not in {ControlRecordType.ABORT, ControlRecordType.COMMIT}:
        return Control(_control_type(number), None)
    if record.value is None or len(record.value) < _MARKER.size:
        raise Corrupt(f"the marker at offset {record.offset} has no coordinator epoch")
    return Control(ControlRecordType(number), _MARKER.unpack_from(record.value)[1])


def _control_type(number: int) -> ControlRecordType | int:
    return ControlRecordType(number) if number in set(ControlRecordType) else number
