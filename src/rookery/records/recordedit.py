"""Replace the records of a batch by changed ones; everything else of the batch stays.

The number of records, their offsets and times, the producer's id, epoch and sequence and the spare
bits of the attributes stay, so that idempotence, transactions and compaction are not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rookery.records import batches, kernel
from rookery.records.batches import LOG_APPEND_TIME, BatchHeader
from rookery.records.compression import NONE, Codec
from rookery.records.kernel import Buffer
from rookery.records.recordcodec import Record, payload

RecordFields = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int, int]
"""The fields of a `Record`, which is slower to make."""
RecordChange = Callable[[Iterator[Record]], Iterable[RecordFields]]
"""Returns a changed record for each record, in order."""

EDIT_LIMIT = 64 * 1024 * 1024
"""The maximum decompressed size of a batch that is changed."""


def edit(
    records: Buffer,
    header: BatchHeader,
    change: RecordChange,
    codec: Codec | None = None,
    limit: int = EDIT_LIMIT,
) -> bytes:
    """Return a batch with changed records.

    Times of the records that `change` gets are differences from the first time of the batch.

    Args:
        records: holds the batch; its CRC must have been checked.
        header: the header of the batch. Control batches and empty ones have nothing to change.
        change: changes the records.
        codec: compresses the result; by default that of the batch.
        limit: for the decompressed records.

    Raises:
        Corrupt: a record does not match its lengths.
        ApiError: the decompressed records would exceed the limit.
        ValueError: `change` returns another number of records.
    """
    if header.is_control or not header.record_count:
        return bytes(memoryview(records)[header.position : header.end])
    # Kafka's times are the base plus a difference. LogAppendTime replaces them, so that it is
    # left out here: the differences in the bytes stay as they are.
    raw = header._replace(base_timestamp=0, attributes=header.attributes & ~LOG_APPEND_TIME)
    rows = kernel.decode(payload(records, header, limit), raw, Record)
    body, count, _, first, _ = kernel.encode(change(rows), header.base_offset)
    if count != header.record_count:
        raise ValueError(f"{header.record_count} records became {count}")
    chosen = header.codec if codec is None else codec
    packed = body if chosen is NONE else chosen.compress(body)
    attributes = header.attributes & ~batches.CODEC_MASK | chosen.id
    made = header._replace(attributes=attributes, base_timestamp=header.base_timestamp + first)
    return batches.seal(made, packed) + packed
