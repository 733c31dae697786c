"""Finds the last record of every key within each partition, without a shuffle.

A key occurs in only one partition if producers choose partitions by key. All records without a key
are kept. A key whose last record is a tombstone (no value) is left out.

A partition that is too large for one task is split among several tasks by a hash of the key. Each
task reads the whole partition and keeps its own keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rookery.log.read.rangeplan import PlannedRange
from rookery.records.murmur import partitions

MAX_BYTES: Final = 256 * 1024 * 1024
"""The maximum size of the partition data whose keys one task keeps."""
# Rows are deduplicated by key each time this many have accumulated.
_ROWS: Final = 500_000
_LARGE_PRIME: Final = (1 << 31) - 1
_MIX: Final = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class KeyShare:
    """The keys that a task keeps: those whose hash has this remainder."""

    index: int = 0
    count: int = 1


def shares(ranges: Iterable[PlannedRange], tasks: int) -> list[tuple[list[PlannedRange], KeyShare]]:
    """Distribute whole partitions among tasks, and split large partitions by key."""
    small: list[PlannedRange] = []
    split: list[tuple[list[PlannedRange], KeyShare]] = []
    for range_ in ranges:
        count = -(-range_.size // MAX_BYTES)
        if count <= 1:
            small.append(range_)
        else:
            split += [([range_], KeyShare(index, count)) for index in range(count)]
    bins: list[list[PlannedRange]] = [[] for _ in range(max(1, tasks))]
    for range_ in sorted(small, key=lambda each: -each.size):
        min(bins, key=lambda many: sum(other.size for other in many)).append(range_)
    return split + [(many, KeyShare()) for many in bins if many]


class TooManyKeysError(Exception):
    """The records to keep exceed the memory limit."""


def latest(
    batches: Iterable[pa.RecordBatch], share: KeyShare, max_bytes: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the last record of each key of one partition, in offset order.

    Args:
        batches: batches with the columns key and value.
        share: the keys to keep.
        max_bytes: the limit for records kept in memory; 0: no limit.

    Raises:
        TooManyKeysError: the limit is exceeded.
    """
    kept: list[pa.RecordBatch] = []
    rows = distinct = size = 0
    for batch in batches:
        chosen = _own(batch, share)
        kept.append(chosen)
        rows += chosen.num_rows
        size += chosen.nbytes
        if rows >= max(_ROWS, 2 * distinct) or size > max_bytes > 0:
            kept = _last(kept)
            rows = distinct = sum(last.num_rows for last in kept)
            size = sum(last.nbytes for last in kept)
            if size > max_bytes // 2 > 0:  # otherwise every batch would trigger a deduplication
                raise TooManyKeysError
    for batch in _last(kept):
        present = batch.filter(pc.or_(pc.is_valid(batch["value"]), pc.is_null(batch["key"])))
        if present.num_rows:
            yield present


def _own(batch: pa.RecordBatch, share: KeyShare) -> pa.RecordBatch:
    """Remove the keys of other tasks; the first task keeps the records without a key."""
    if share.count == 1:
        return batch
    is_null = np.asarray(pc.is_null(batch["key"]))
    is_own = np.where(is_null, share.index == 0, _hashes(batch["key"]) % share.count == share.index)
    return batch.filter(pa.array(is_own))


def _hashes(keys: pa.Array[Any]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Hash keys with a different hash than producers use: all keys of a partition share that."""
    _, offsets, data = keys.buffers()
    raw = partitions(
        memoryview(offsets) if offsets is not None else bytes(8),
        memoryview(data) if data is not None else b"",
        keys.offset,
        len(keys),
        False,  # noqa: FBT003 (the offsets have 32 bits)
        _LARGE_PRIME,
    )
    numbers: np.ndarray[Any, np.dtype[np.uint64]] = np.frombuffer(raw, np.int32).astype(np.uint64)
    return (numbers * np.uint64(_MIX)) >> np.uint64(40)


def _last(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Keep the last row of each key, and all rows without a key."""
    if not batches:
        return []
    table = pa.Table.from_batches(batches).combine_chunks()
    if not table.num_rows:
        return []
    codes = table["key"].combine_chunks().dictionary_encode().indices
    is_null = np.asarray(codes.is_null())
    numbers = np.asarray(codes.fill_null(0))
    rows = np.arange(len(numbers))
    last = np.full(int(numbers.max()) + 1, -1)
    last[numbers[~is_null]] = rows[~is_null]  # for equal keys, the later row wins
    kept = np.sort(np.concatenate([last[last >= 0], rows[is_null]]))
    return table.take(kept).combine_chunks().to_batches()
