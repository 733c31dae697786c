"""Upserts by copy-on-write, in tasks that need little memory and can run on any host.

    split     each file of changes, by a hash of the key, into buckets (if there is more than one)
    latest    of each bucket: the last change of every key, which is a new file of the table; and
              next to it a file with the keys that were changed
    rewrite   each file of the table: without the rows whose keys were changed, if it has any

No task holds more than a bucket or one file of the table. Tasks exchange staged files, so the
committing process handles only names. Tasks read only immutable files. So a second attempt returns
the same rows, and upkeep deletes the files of the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rookery.clock import SystemRandom
from rookery.errors import Error
from rookery.records import murmur
from rookery.tables import parquetfiles
from rookery.tables.folder import TableFolder
from rookery.tables.latest import change_schema, latest, select_remaining
from rookery.tables.port import DataFile, Run, Upsert

MAX_BUCKETS: Final = 1024
_Data = bytes
"""The bytes of a file; tasks have a property named `bytes`."""
_AT: Final = "__at"


class Swap(NamedTuple):
    """Files that replace others."""

    removed: list[DataFile]
    added: list[DataFile]


def upsert_rows(
    folder: TableFolder,
    live: Sequence[DataFile],
    changes: Sequence[DataFile],
    schema: pa.Schema,
    upsert: Upsert,
    run: Run,
) -> Swap:
    """Rewrite the files that the changes touch, and write the changes as new files.

    Raises:
        ConfigError: the changes have no such key column, or rows without a key.
    """
    work = _Work(folder, schema, upsert.keys, upsert.order, upsert.deleted)
    buckets = _buckets(work, changes, upsert, run)
    changed: list[_ChangedFiles] = run([_LatestRows(work, tuple(parts)) for parts in buckets])
    keys = tuple(file for files in changed for file in files.keys)
    swaps: list[Swap] = run([_Rewrite(work, file, keys) for file in live])
    swap = Swap([], [])
    for rewrite in swaps:
        swap.removed.extend(rewrite.removed)
        swap.added.extend(rewrite.added)
    swap.added.extend(file for files in changed for file in files.added)
    staged = {file.path for file in changes}
    _forget(
        folder, [*keys, *(part for parts in buckets for part in parts if part.path not in staged)]
    )
    return swap


def last_changes(
    folder: TableFolder, changes: Sequence[DataFile], schema: pa.Schema, upsert: Upsert, run: Run
) -> Iterator[pa.Table]:
    """Yield the last change of every key, one bucket of keys at a time."""
    work = _Work(folder, schema, upsert.keys, upsert.order, upsert.deleted)
    for parts in _buckets(work, changes, upsert, run):
        yield _LatestRows(work, tuple(parts)).rows()
        _forget(folder, [part for part in parts if part not in changes])


@dataclass(frozen=True, slots=True)
class _Work:
    """Settings that all tasks of an upsert share."""

    folder: TableFolder
    schema: pa.Schema
    keys: tuple[str, ...]
    order: tuple[str, ...]
    deleted: str

    @property
    def upsert(self) -> Upsert:
        return Upsert(self.keys, self.order, self.deleted)

    @property
    def key_schema(self) -> pa.Schema:
        return pa.schema([self.schema.field(key) for key in self.keys])


def _buckets(
    work: _Work, changes: Sequence[DataFile], upsert: Upsert, run: Run
) -> list[list[DataFile]]:
    """Return the changes grouped by bucket of their keys, in their original order."""
    total = sum(file.bytes for file in changes)
    count = min(MAX_BUCKETS, -(-total // upsert.bucket_bytes))
    if count <= 1:
        return [list(changes)] if changes else []
    buckets: list[list[DataFile]] = [[] for _ in range(count)]
    parts: list[dict[int, list[DataFile]]] = run([_Split(work, file, count) for file in changes])
    for part in parts:
        for bucket, files in part.items():
            buckets[bucket].extend(files)
    return [files for files in buckets if files]


@dataclass(frozen=True, slots=True)
class _Split:
    work: _Work
    file: DataFile
    count: int

    @property
    def bytes(self) -> int:
        return self.file.bytes

    def __call__(self) -> dict[int, list[DataFile]]:
        schema = change_schema(self.work.schema, self.work.upsert)
        rows = parquetfiles.rows(self.work.folder, self.file, schema)
        batches = (batch for batch in rows if batch.num_rows)
        return parquetfiles.stage_parted(
            self.work.folder, _divide(batches, self.work.keys, self.count), schema, _attempt("part")
        )


class _ChangedFiles(NamedTuple):
    added: list[DataFile]
    keys: list[DataFile]


@dataclass(frozen=True, slots=True)
class _LatestRows:
    work: _Work
    files: tuple[DataFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def rows(self) -> pa.Table:
        """Return the last changes, including those that delete."""
        schema = change_schema(self.work.schema, self.work.upsert)
        batches = [
            batch
            for file in self.files
            for batch in parquetfiles.rows(self.work.folder, file, schema)
        ]
        return latest(pa.Table.from_batches(batches, schema), self.work.upsert)

    def __call__(self) -> _ChangedFiles:
        work, last = self.work, self.rows()
        return _ChangedFiles(
            self._write(select_remaining(last, work.schema, work.upsert), work.schema, "upserted"),
            self._write(last.select(list(work.keys)), work.key_schema, "keys"),
        )

    def _write(self, rows: pa.Table, schema: pa.Schema, kind: str) -> list[DataFile]:
        batches = rows.select(schema.names).to_batches(max_chunksize=1 << 16)
        return parquetfiles.stage(self.work.folder, batches, schema, _attempt(kind))


@dataclass(frozen=True, slots=True)
class _Rewrite:
    work: _Work
    file: DataFile
    keys: tuple[DataFile, ...]

    @property
    def bytes(self) -> int:
        return self.file.bytes + sum(key.bytes for key in self.keys)

    def __call__(self) -> Swap:
        data = self.work.folder.read(self.file.path)
        own = self._keys(self.file, data)
        stays = np.ones(own.num_rows, dtype=bool)
        for file in self.keys:
            changed = self._keys(file, self.work.folder.read(file.path))
            stays[_matches(own, changed, self.work.keys)] = False
        if stays.all():
            return Swap([], [])
        left = _filter_rows(
            parquetfiles.decode_rows(self.work.folder, self.file, data, self.work.schema), stays
        )
        attempt = _attempt("rewritten")
        return Swap(
            [self.file], parquetfiles.stage(self.work.folder, left, self.work.schema, attempt)
        )

    def _keys(self, file: DataFile, data: _Data) -> pa.Table:
        # An older file can have a narrower type, which would not hold the new keys.
        return parquetfiles.columns(self.work.folder, file, data, self.work.key_schema)


def _matches(own: pa.Table, changed: pa.Table, keys: Sequence[str]) -> Any:
    """Return the indexes of the rows whose keys are in `changed`."""
    # Only keys are joined, because Arrow cannot pass nested columns through a join.
    numbered = own.append_column(_AT, pa.array(np.arange(own.num_rows), pa.int64()))
    matches = numbered.join(changed, keys=list(keys), join_type="left semi")
    return matches[_AT].to_numpy()


def _filter_rows(batches: Iterator[pa.RecordBatch], stays: Any) -> Iterator[pa.RecordBatch]:
    at = 0
    for batch in batches:
        yield batch.filter(pa.array(stays[at : at + batch.num_rows]))
        at += batch.num_rows


def _divide(
    batches: Iterator[pa.RecordBatch], keys: Sequence[str], count: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield rows by the bucket of their keys; the order within a bucket is preserved."""
    for batch in batches:
        buckets = _hash(batch, keys, count)
        for bucket in np.unique(buckets):
            yield int(bucket), batch.filter(pa.array(buckets == bucket))


def _hash(batch: pa.RecordBatch, keys: Sequence[str], count: int) -> Any:
    texts = [_text(batch.column(batch.schema.get_field_index(key))) for key in keys]
    compute: Any = pc  # its stubs know fewer overloads than there are
    joined = compute.binary_join_element_wise(*texts, pa.scalar(b"\0", pa.binary()))
    _, offsets, data = joined.buffers()
    buckets = murmur.partitions(
        memoryview(offsets),
        memoryview(data or b""),
        joined.offset,
        len(joined),
        False,  # noqa: FBT003 (offsets have 32 bits)
        count,
    )
    return np.frombuffer(buckets, dtype=np.int32)


def _text(column: pa.Array[Any]) -> pa.Array[Any]:
    if not pa.types.is_binary(column.type):
        column = column.cast(pa.string()).cast(pa.binary())
    compute: Any = pc
    filled: pa.Array[Any] = compute.fill_null(column, pa.scalar(b"", pa.binary()))
    return filled


def _forget(folder: TableFolder, files: Sequence[DataFile]) -> None:
    for file in files:
        with suppress(Error):  # upkeep deletes the remaining files
            folder.delete(file.path)


def _attempt(kind: str) -> str:
    return f"{kind}-{SystemRandom().token(8).hex()}"
