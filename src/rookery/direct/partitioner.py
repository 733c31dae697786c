"""Chooses the partition of each row: a column that names it, or the key as in Java's producer.

Rows without a key are grouped into long runs that rotate over the partitions, as with Java's
producer (KIP-480). This makes few, large batches, and all partitions get equal shares over time.
"""

from __future__ import annotations

from array import array
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from rookery.clock import Random
from rookery.errors import ApiError, ErrorCode
from rookery.records import murmur

# The approximate size of a run of rows without a key, unless there are too few rows.
_STICKY_BYTES: Final = 64 * 1024


class RowPartitioner:
    """Chooses partitions for the rows of one writer."""

    def __init__(self, random: Random) -> None:
        # Writers start at a random partition: otherwise the first one would get more than its
        # share.
        self._turn = int.from_bytes(random.token(4), "big")

    def choose(self, rows: pa.RecordBatch, topic: str, count: int) -> bytearray:
        """Return the partition of each row as int32, from 0 to `count` - 1.

        Args:
            rows: rows that may have the columns `partition` and `key`, binary or text.
            topic: the topic of the partitions, for messages.
            count: the number of its partitions.

        Raises:
            ApiError: a row names a partition that the topic does not have.
        """
        names = rows.schema.names
        keys = rows.column("key") if "key" in names else None
        stated = rows.column("partition") if "partition" in names else None
        if stated is not None and stated.null_count == len(stated):
            stated = None
        if stated is not None:
            _check(stated, topic, count)
            if not stated.null_count:
                return _bytes(stated.cast(pa.int32()))
        if keys is not None and stated is None and not keys.null_count:
            return _hash(keys, count)
        chosen = self._by_turns(rows, count)
        if keys is not None and keys.null_count < len(keys):
            chosen = pc.if_else(keys.is_valid(), _int32(_hash(keys, count)), chosen)
        if stated is not None:
            chosen = pc.coalesce(stated.cast(pa.int32()), chosen)
        return _bytes(chosen)

    def _by_turns(self, rows: pa.RecordBatch, count: int) -> pa.Array[Any]:
        """Cut the rows into runs, one for each next partition."""
        total = rows.num_rows
        runs = max(1, min(count, rows.nbytes // _STICKY_BYTES, total))
        values = array("i")
        for run in range(runs):
            size = total * (run + 1) // runs - total * run // runs
            values.extend(array("i", [(self._turn + run) % count]) * size)
        self._turn += runs
        return _int32(values)


def _hash(keys: pa.Array[Any], count: int) -> bytearray:
    """Hash keys; a null key counts as empty here."""
    is_large = pa.types.is_large_binary(keys.type) or pa.types.is_large_string(keys.type)
    _, offsets, data = keys.buffers()
    return murmur.partitions(
        memoryview(offsets) if offsets is not None else bytes(16),
        memoryview(data) if data is not None else b"",
        keys.offset,
        len(keys),
        is_large,
        count,
    )


def _check(stated: pa.Array[Any], topic: str, count: int) -> None:
    for value in (pc.min(stated).as_py(), pc.max(stated).as_py()):
        if value is not None and not 0 <= value < count:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"a row names partition {value} of topic {topic}, which has {count} (0 to "
                f"{count - 1}); write another partition, null to go by the key, or add partitions",
            )


def _int32(values: bytearray | array[int]) -> pa.Array[Any]:
    size = len(values) if isinstance(values, array) else len(values) // 4
    return pa.Array.from_buffers(pa.int32(), size, [None, pa.py_buffer(values)])


def _bytes(values: pa.Array[Any]) -> bytearray:
    data = values.buffers()[1]
    if data is None:
        return bytearray()
    return bytearray(data.slice(values.offset * 4, len(values) * 4))
