"""The input of encoding from columns: settings, accepted columns, and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rookery.errors import ApiError, ConfigError, ErrorCode
from rookery.records.batches import HEADER_SIZE
from rookery.records.compression import NONE, Codec
from rookery.records.reading import HEADERS, INT32_MAX

_TAKEN = ("key", "value", "headers", "timestamp", "offset")
LAST_TIMESTAMP = 2**62
"""With later timestamps, differences would not fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """How rows become batches.

    Attributes:
        codec: compression; a batch that would not become smaller is not compressed.
        max_batch_bytes: the size of a batch, including its header.
        max_record_bytes: a larger record gets its own batch, of at most this many bytes before
            compression; 0: it is rejected.
        base_offset: the first row's offset; the broker assigns its own anyway.
        keep_offsets: take offsets from the column `offset` instead, including gaps.
        timestamp_ms: for rows without a timestamp; -1 is Kafka's value for none.
        leader_epoch: as a producer writes it, -1.
        producer_id, producer_epoch, base_sequence: of an idempotent producer.
        transactional: the batches are part of the producer's transaction.
    """

    codec: Codec = NONE
    max_batch_bytes: int = 1_000_000
    max_record_bytes: int = 0
    base_offset: int = 0
    keep_offsets: bool = False
    timestamp_ms: int = -1
    leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False

    def __post_init__(self) -> None:
        if not HEADER_SIZE < self.max_batch_bytes <= INT32_MAX:
            raise ConfigError(
                f"max_batch_bytes={self.max_batch_bytes}: must be from {HEADER_SIZE + 1} "
                f"to {INT32_MAX}"
            )
        if not 0 <= self.max_record_bytes <= INT32_MAX:
            raise ConfigError(
                f"max_record_bytes={self.max_record_bytes}: must be from 0 to {INT32_MAX}"
            )
        if self.base_offset < 0:
            raise ConfigError(f"base_offset={self.base_offset}: must not be negative")
        if not -1 <= self.timestamp_ms <= LAST_TIMESTAMP:
            raise ConfigError(f"timestamp_ms={self.timestamp_ms}: must be from -1 to 2**62")


def prepare(rows: pa.RecordBatch, writing: WriteSettings) -> pa.RecordBatch:
    """Convert record columns to the types that the packer reads, and check them."""
    taken = [name for name in _TAKEN if name in rows.schema.names]
    if "key" not in taken and "value" not in taken:
        raise ConfigError(f"columns {rows.schema.names}: a record needs a key or a value")
    if not writing.keep_offsets:
        taken = [name for name in taken if name != "offset"]
    elif "offset" not in taken or rows.column("offset").null_count:
        raise ConfigError("keep_offsets=True needs a column `offset` without nulls")
    ready = [_prepare(name, rows.column(name)) for name in taken]
    return pa.RecordBatch.from_arrays(ready, names=taken)


def too_large(row: int, size: int, limit: int) -> ApiError:
    """Return the error for a row that does not fit into a batch."""
    what = f"its record of {size} bytes is above the {limit} that a batch has room for"
    return _refuse(ErrorCode.MESSAGE_TOO_LARGE, row, what)


def bad_offset(row: int) -> ApiError:
    """Return the error for offsets that are negative or do not increase."""
    return _refuse(ErrorCode.INVALID_RECORD, row, "offsets must rise, from 0 up")


def bad_timestamp(row: int) -> ApiError:
    """Return the error for a timestamp out of range."""
    return _refuse(
        ErrorCode.INVALID_TIMESTAMP, row, "its timestamp is before 1970 or too far ahead"
    )


def bad_header(row: int) -> ApiError:
    """Return the error for a header without a key."""
    return _refuse(ErrorCode.INVALID_RECORD, row, "a header is null or has no key")


def _refuse(code: ErrorCode, row: int, what: str) -> ApiError:
    return ApiError(code, f"row {row}: {what}")


def _prepare(name: str, column: pa.Array[Any]) -> pa.Array[Any]:
    try:
        ready = _cast(name, column)
        # The packer follows offsets into buffers unchecked, so they are validated here.
        ready.validate(full=True)
    except pa.ArrowException as error:
        raise ConfigError(
            f"column `{name}` of type {column.type} cannot be written: {error}"
        ) from error
    return ready


def _cast(name: str, column: pa.Array[Any]) -> pa.Array[Any]:
    if name == "headers":
        return column.cast(HEADERS)
    if name == "offset":
        return column.cast(pa.int64())
    if name == "timestamp":
        return _milliseconds(column)
    if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type):
        return column.cast(pa.large_binary())
    return column.cast(pa.binary())


def _milliseconds(column: pa.Array[Any]) -> pa.Array[Any]:
    if pa.types.is_timestamp(column.type):
        # Kafka has no finer times: fractions of a millisecond are truncated, not rejected.
        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False)
    return column.cast(pa.int64())
