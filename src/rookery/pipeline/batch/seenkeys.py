"""Deduplication: remembers the keys seen within the watermark, so that each row is taken once.

All rows of a bucket are processed by one task, which reads the bucket's file from the previous
batch and writes the next. A file holds hashes and event times. Keys older than the watermark are
dropped, since such rows are late anyway.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from rookery.clock import SystemClock
from rookery.errors import ConfigError
from rookery.pipeline.declaration.spec import Pipeline
from rookery.tables.folder import TableFolder

BUCKETS: Final = 16
"""Must never change: a key's bucket is permanent."""
MAX_KEYS: Final = 5_000_000
"""The maximum number of keys in a bucket: about 500 MB of memory."""
_SEEN: Final = "seen/"
_HASH_BYTES: Final = 16
_COLUMNS: Final[dict[str, pa.DataType]] = {
    "hash": pa.binary(_HASH_BYTES),
    "event_ms": pa.int64(),
}
_SCHEMA: Final = pa.schema(_COLUMNS)


class SeenKeys:
    """The keys seen by a task and by earlier batches."""

    def __init__(
        self, pipeline: Pipeline, files: Mapping[str, str], watermark_ms: int | None
    ) -> None:
        self._silver = pipeline.silver
        self._folder = TableFolder(pipeline.state)
        self._files = files
        self._watermark_ms = watermark_ms or 0
        self._buckets: dict[int, dict[bytes, int]] = {}

    def first(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows whose keys were not seen before."""
        if not self._silver.dedupe or not rows.num_rows:
            return rows
        taken = [
            row
            for row, (key, event_ms) in enumerate(self._compute_keys(rows))
            if self._is_new(key, event_ms)
        ]
        return rows.take(pa.array(taken, pa.int64()))

    def write(self, attempt: str) -> dict[str, str]:
        """Write the buckets that were used; return their files."""
        written = {}
        for bucket, keys in self._buckets.items():
            path = f"{_SEEN}{SystemClock().now_ms():013}-{bucket}-{attempt}.parquet"
            table = pa.table([list(keys), list(keys.values())], schema=_SCHEMA)
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink, compression="zstd")
            self._folder.create(path, sink.getvalue())
            written[str(bucket)] = path
        return written

    def _compute_keys(self, rows: pa.RecordBatch) -> Iterator[tuple[bytes, int]]:
        times = event_ms(rows.column(self._silver.event_time))
        return zip(key_hashes(rows, self._silver.keys), times, strict=True)

    def _is_new(self, key: bytes, event_ms: int) -> bool:
        bucket = self._bucket(bucket_of(key))
        if key in bucket:
            return False
        if len(bucket) >= MAX_KEYS:
            raise ConfigError(
                f"silver.dedupe: more than {MAX_KEYS * BUCKETS} keys within the watermark;"
                " make it shorter"
            )
        bucket[key] = event_ms
        return True

    def _bucket(self, number: int) -> dict[bytes, int]:
        if number not in self._buckets:
            path = self._files.get(str(number))
            self._buckets[number] = {} if path is None else self._read(path)
        return self._buckets[number]

    def _read(self, path: str) -> dict[bytes, int]:
        table = pq.read_table(pa.BufferReader(self._folder.read(path)))
        hashes: list[Any] = table["hash"].to_pylist()
        times: list[Any] = table["event_ms"].to_pylist()
        return {key: at for key, at in zip(hashes, times, strict=True) if at >= self._watermark_ms}


class SeenInReplay(SeenKeys):
    """The keys seen by a task in one replay, whose dead letters may be years apart.

    A replay has no watermark. So a key counts as new if its events are further apart than the
    watermark allows. Nothing is kept for the next replay, since keys would never expire.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline, {}, None)
        self._apart_ms = pipeline.silver.watermark_ms() or 0
        self._times: dict[bytes, list[int]] = {}

    def _is_new(self, key: bytes, event_ms: int) -> bool:
        times = self._times.setdefault(key, [])
        if any(abs(event_ms - time) <= self._apart_ms for time in times):
            return False
        times.append(event_ms)
        return True


def key_hashes(rows: pa.RecordBatch, keys: tuple[str, ...]) -> Iterator[bytes]:
    """Yield a hash of each row's key."""
    columns = [rows.column(key).to_pylist() for key in keys]
    for row in zip(*columns, strict=True):
        yield hashlib.blake2b(repr(row).encode(), digest_size=_HASH_BYTES).digest()


def bucket_of(key: bytes) -> int:
    """Return the bucket of a key's hash."""
    return key[0] % BUCKETS


def event_ms(column: pa.Array[Any]) -> list[int]:
    """Return event times in milliseconds."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
    return [int(ms or 0) for ms in column.to_pylist()]


def forget(folder: TableFolder, used: set[str], before_ms: int) -> int:
    """Delete files of seen keys that are unused and were written before a given time."""
    stored = [file.key for file in folder.list(_SEEN) if file.key not in used]
    old = [key for key in stored if int(key.removeprefix(_SEEN).partition("-")[0]) < before_ms]
    for key in old:
        folder.delete(key)
    return len(old)
