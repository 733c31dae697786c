"""The input of decoding to columns: fetched batches, requested columns, and faults.

The compiled decoder and its Python twin both use these values and raise the faults defined here, so
that their messages cannot differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from rookery.errors import ApiError, ConfigError, Corrupt, Error, ErrorCode
from rookery.records import legacy
from rookery.records.compression import CODECS, DEFAULT_LIMIT
from rookery.records.kernel import Buffer

__all__ = ["PartitionBatches", "ReadSettings"]

END = 2**63 - 1
INT32_MAX = 2**31 - 1

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_FIXED: dict[str, pa.DataType] = {
    "topic": pa.dictionary(pa.int32(), pa.string()),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    "timestamp_type": pa.int8(),
    "headers": HEADERS,
    "leader_epoch": pa.int32(),
}
COLUMNS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "leader_epoch",
)


@dataclass(frozen=True, slots=True)
class PartitionBatches:
    """Consecutive record batches of one topic-partition, from a fetch or a segment.

    A fetch returns whole batches, so only records with `from_offset` <= offset < `until_offset` are
    read. `aborted` lists aborted transactions, whose records are left out, as producer id, first
    offset and offset of the marker that ends the transaction. A Fetch response does not report the
    marker's offset (`END`), but contains the marker itself. In other sources the marker may be
    stored apart from the records. Control batches are always left out.
    """

    topic: str
    partition: int
    data: Buffer
    from_offset: int = 0
    until_offset: int = END
    aborted: Sequence[tuple[int, int, int]] = ()


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The requested columns, and the limits of decoding.

    Attributes:
        columns: names out of `COLUMNS`, in the requested order; others are not decoded.
        views: key and value as `binary_view` into the fetched data, which must not change while
            the columns live, instead of copies as `binary`.
        check_crc: reject a batch whose checksum is wrong.
        allow_cut: ignore an incomplete last batch (a fetch may cut it off).
        max_bytes: keys, values and headers in one RecordBatch, in bytes; Arrow's own limit is the
            default.
        max_rows: rows in one RecordBatch.
        max_inflated_bytes: the maximum decompressed size of one batch.
    """

    columns: tuple[str, ...] = COLUMNS
    views: bool = False
    check_crc: bool = True
    allow_cut: bool = False
    max_bytes: int = INT32_MAX
    max_rows: int = INT32_MAX
    max_inflated_bytes: int = DEFAULT_LIMIT

    def __post_init__(self) -> None:
        unknown = [name for name in self.columns if name not in COLUMNS]
        if unknown or not self.columns or len(set(self.columns)) != len(self.columns):
            raise ConfigError(
                f"columns={self.columns}: choose one or more, each once, from {COLUMNS}"
            )
        for name in ("max_bytes", "max_rows", "max_inflated_bytes"):
            if not 0 < getattr(self, name) <= INT32_MAX:
                raise ConfigError(f"{name}={getattr(self, name)}: must be from 1 to {INT32_MAX}")

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the columns."""
        return _schema(self.columns, self.views)


@cache
def _schema(columns: tuple[str, ...], views: bool) -> pa.Schema:  # noqa: FBT001 (a key)
    content = pa.binary_view() if views else pa.binary()
    return pa.schema([(name, _FIXED.get(name, content)) for name in columns])


# Faults of a batch, then of a record in it. The decoder's inner loop refers to them by index.
FAULTS = (
    "",
    "the data ends before the batch does",
    "its length is too small for a batch",
    "its offsets are out of range",
    "its record count does not fit its offsets or its length",
    "its checksum is wrong",
    "its magic is unknown to Kafka",
    "its control record is malformed",
    "it holds bytes after its last record",
    "a record's length does not fit the batch",
    "a record's number is cut short or too long",
    "a record's offset is out of the batch's range",
    "a record's timestamp is out of range",
    "a record's key does not fit the record",
    "a record's value does not fit the record",
    "a record's header does not fit the record",
    "a record holds bytes after its last header",
)
(
    _,
    CUT,
    SHORT,
    OFFSETS,
    COUNT,
    CRC,
    MAGIC,
    CONTROL,
    TRAILING,
    RECORD_LENGTH,
    NUMBER,
    RECORD_OFFSET,
    TIMESTAMP,
    KEY,
    VALUE,
    HEADER,
    RECORD_TRAILING,
) = range(len(FAULTS))


def corrupt(topic: str, partition: int, offset: int, what: int) -> Corrupt:
    """Return the error for a batch that cannot be read."""
    return Corrupt(f"{_where(topic, partition, offset)}: {FAULTS[what]}")


def bad_magic(topic: str, partition: int, offset: int, magic: int) -> Error:
    """Return the error for a batch that does not have format 2."""
    if magic > 1:
        return corrupt(topic, partition, offset, MAGIC)
    refused = legacy.refuse(legacy.MAGICS[magic], from_producer=False)
    return ApiError(refused.code, f"{_where(topic, partition, offset)}: {refused.text}")


def too_big(topic: str, partition: int, offset: int, size: int, limit: int) -> ConfigError:
    """Return the error for a single record above the limit of a RecordBatch."""
    where = f"{topic}-{partition}, offset {offset}"
    return ConfigError(f"max_bytes={limit}: the record at {where} needs {size}; raise the limit")


def inflate(
    fetched: PartitionBatches, offset: int, codec: int, packed: Buffer, limit: int
) -> bytes | bytearray:
    """Decompress the records of a batch; errors name it."""
    where = _where(fetched.topic, fetched.partition, offset)
    if codec not in CODECS:
        text = f"{where}: codec {codec} is unknown to Kafka"
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text)
    try:
        return CODECS[codec].decompress(packed, limit)
    except Corrupt as fault:
        raise Corrupt(f"{where}: {fault}") from fault
    except ApiError as fault:
        raise ApiError(fault.code, f"{where}: {fault.text}") from fault


def _where(topic: str, partition: int, offset: int) -> str:
    return f"{topic}-{partition}, batch at offset {offset}"
