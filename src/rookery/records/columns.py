"""Record batches to Arrow columns and back.

Fetched batches of any number of topic-partitions become few, large RecordBatches with only the
columns asked for; rows become batches of a bounded size. The loops over records run compiled,
without the interpreter's lock (`_columns.pyx`), or else in plain Python (`twins/columnstwin.py`).

    >>> rows = pa.record_batch({"key": [b"a", None], "value": [b"1", b""]})
    >>> [batch] = encode(rows)
    >>> chosen = ReadSettings(columns=("key", "value"))
    >>> [back] = decode([PartitionBatches("orders", 0, batch)], chosen)
    >>> back.equals(rows)
    True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from rookery.errors import ApiError, ErrorCode
from rookery.native import load
from rookery.records.batches import HEADER_SIZE, MAGIC, TRANSACTIONAL, BatchHeader, seal
from rookery.records.reading import INT32_MAX, PartitionBatches, ReadSettings
from rookery.records.writing import WriteSettings, prepare

__all__ = ["WriteSettings", "decode", "encode"]

if TYPE_CHECKING:
    from rookery.records import _columns
else:
    _columns = load("rookery.records._columns", "rookery.records.twins.columnstwin")

_READ_ALL = ReadSettings()


def decode(
    fetched: Iterable[PartitionBatches], reading: ReadSettings | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the records of fetched batches as columns, in the order given.

    All records go into one RecordBatch until a limit of `reading` is reached. Rows before a fault
    are yielded before it is raised.

    Raises:
        Corrupt: a batch cannot be read; the message names topic, partition and offset.
        ApiError: a batch has an old format or an unknown codec, or exceeds its size limit.
        ConfigError: a single record is larger than `max_bytes`.
    """
    decoder = _columns.Decoder(reading or _READ_ALL)
    for batches in fetched:
        decoder.open(batches)
        while (rows := decoder.take()) is not None:
            yield rows
    while (rows := decoder.drain()) is not None:
        yield rows


def encode(
    rows: pa.RecordBatch | pa.Table, writing: WriteSettings | None = None
) -> Iterator[bytearray]:
    """Yield the rows as record batches; the columns are key, value, headers, timestamp, offset.

    Missing columns and nulls mean no key, no value, no headers, or the default timestamp. Other
    columns are ignored.

    Raises:
        ApiError: a row cannot be a record (size, timestamp, offset, header); the message names it.
        ConfigError: a setting or a missing column makes encoding impossible.
    """
    chosen = writing or WriteSettings()
    done = 0
    for part in _parts(rows):
        ready = prepare(part, chosen)
        packer = _columns.Packer(ready, chosen.timestamp_ms)
        row = 0
        while row < ready.num_rows:
            try:
                limit = chosen.max_batch_bytes - HEADER_SIZE
                packed = packer.pack(row, chosen.base_offset + done, limit)
            except ApiError as error:
                if not _may_be_alone(error, chosen):
                    raise
                packed = _alone(ready, row, chosen.base_offset + done, chosen)
            yield _finish(packed, chosen, done)
            row += packed[1]
            done += packed[1]


def _parts(rows: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    # Small chunks would make small batches, so they are joined first.
    return [rows] if isinstance(rows, pa.RecordBatch) else rows.combine_chunks().to_batches()


def _may_be_alone(error: ApiError, writing: WriteSettings) -> bool:
    is_large = error.code is ErrorCode.MESSAGE_TOO_LARGE
    return is_large and writing.max_record_bytes > writing.max_batch_bytes


def _alone(ready: pa.RecordBatch, row: int, offset: int, writing: WriteSettings) -> _columns.Packed:
    # The slice ends with this row, so that no other row joins it and errors have its number.
    packer = _columns.Packer(ready.slice(0, row + 1), writing.timestamp_ms)
    return packer.pack(row, offset, writing.max_record_bytes - HEADER_SIZE)


def _finish(packed: _columns.Packed, writing: WriteSettings, done: int) -> bytearray:
    batch, count, base_offset, last_delta, base_timestamp, max_timestamp = packed
    batch, codec = _compress(batch, writing)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=writing.leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=codec | (TRANSACTIONAL if writing.transactional else 0),
        last_offset_delta=last_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=writing.producer_id,
        producer_epoch=writing.producer_epoch,
        base_sequence=_sequence(writing.base_sequence, done),
        record_count=count,
    )
    batch[:HEADER_SIZE] = seal(header, memoryview(batch)[HEADER_SIZE:])
    return batch


def _compress(batch: bytearray, writing: WriteSettings) -> tuple[bytearray, int]:
    if not writing.codec.id:
        return batch, 0
    small = writing.codec.compress(memoryview(batch)[HEADER_SIZE:])
    if len(small) >= len(batch) - HEADER_SIZE:
        return batch, 0
    return bytearray(HEADER_SIZE) + small, writing.codec.id


def _sequence(base: int, done: int) -> int:
    # Kafka's sequence numbers wrap around from the highest int32 to 0.
    return base if base < 0 else (base + done) % (INT32_MAX + 1)
