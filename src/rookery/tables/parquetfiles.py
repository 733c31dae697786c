"""Writes rows to Parquet files and reads them; memory is bounded by one file in each direction.

A file's name contains the time at which it was written. So files of killed processes can be
distinguished from files to be committed, even on stores that do not report a file's age.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from rookery.clock import SystemClock, Time
from rookery.errors import ConfigError, Corrupt
from rookery.tables.folder import TableFolder
from rookery.tables.port import MIB, DataFile, UpkeepPolicy, UpkeepResult
from rookery.tables.schemas import fit, index_of, plain_names

DATA: Final = "data/"
_FILE_BYTES: Final = 128 * MIB
"""The size at which a file is closed."""
_GROUP_BYTES: Final = 32 * MIB
_GROUP_ROWS: Final = 1 << 20
_ATTEMPT: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_NAME: Final = re.compile(rf"{DATA}(\d{{13}})-[A-Za-z0-9._-]+\.parquet")


def stage(
    folder: TableFolder,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    attempt: str,
    file_bytes: int = _FILE_BYTES,
) -> list[DataFile]:
    """Write rows to new files of the folder; `attempt` is unique to the writer."""
    if _ATTEMPT.fullmatch(attempt) is None:
        raise ValueError(f"attempt {attempt!r}: 1 to 100 letters, digits and ._- only")
    files: list[DataFile] = []
    writer = _Writer(schema)
    for batch in batches:
        writer.add(fit(batch, schema))
        if writer.bytes >= file_bytes:
            files.append(writer.close(folder, f"{attempt}-{len(files)}"))
            writer = _Writer(schema)
    if writer.rows:
        files.append(writer.close(folder, f"{attempt}-{len(files)}"))
    return files


def stage_parted(
    folder: TableFolder,
    parted: Iterable[tuple[int, pa.RecordBatch]],
    schema: pa.Schema,
    attempt: str,
) -> dict[int, list[DataFile]]:
    """Write rows to one file per part; all rows are held in memory until then."""
    writers: dict[int, _Writer] = {}
    for part, batch in parted:
        writers.setdefault(part, _Writer(schema)).add(fit(batch, schema))
    return {
        part: [writer.close(folder, f"{attempt}-{part}")]
        for part, writer in sorted(writers.items())
        if writer.rows
    }


class _Writer:
    """One file, held in memory until it is complete."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = plain_names(schema)
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, self._schema, compression="zstd")
        self._group: list[pa.RecordBatch] = []
        self._group_bytes = 0
        self._group_rows = 0
        self.rows = 0

    @property
    def bytes(self) -> int:
        return self._sink.tell() + self._group_bytes

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._group.append(batch)
        self._group_bytes += batch.nbytes
        self._group_rows += batch.num_rows
        self.rows += batch.num_rows
        if self._group_bytes >= _GROUP_BYTES or self._group_rows >= _GROUP_ROWS:
            self._flush()

    def close(self, folder: TableFolder, name: str) -> DataFile:
        self._flush()
        self._writer.close()
        data = self._sink.getvalue()
        path = f"{DATA}{SystemClock().now_ms():013}-{name}.parquet"
        folder.create(path, data)
        return DataFile(path, self.rows, data.size)

    def _flush(self) -> None:
        if self._group:
            self._writer.write_table(pa.Table.from_batches(self._group, self._schema))
        self._group, self._group_bytes, self._group_rows = [], 0, 0


def check(table: str, schema: pa.Schema) -> None:
    """Check that Parquet supports all types of these columns.

    Raises:
        ConfigError: a type is not supported.
    """
    try:
        pq.write_table(plain_names(schema).empty_table(), pa.BufferOutputStream())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigError(f"table {table!r}: Parquet cannot keep its columns: {error}") from error


def read_stage_time(path: str) -> Time | None:
    """Return the time at which a file was staged, None if its name has another form."""
    match = _NAME.fullmatch(path)
    return Time(int(match[1])) if match else None


def sweep(
    folder: TableFolder, known: Collection[str], policy: UpkeepPolicy, now: Time, done: UpkeepResult
) -> None:
    """Delete staged files that are not part of the table and will not be committed."""
    until = now - max(policy.keep_ms, policy.orphan_ms)
    for stored in folder.list(DATA):
        is_needed = stored.key in known or stored.key in policy.staged
        if not is_needed and (read_stage_time(stored.key) or until) < until:
            folder.delete(stored.key)
            done.files_deleted += 1
            done.bytes_deleted += stored.size


def rows(folder: TableFolder, file: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows, with the columns of a table that may have more columns by now."""
    yield from decode_rows(folder, file, folder.read(file.path), schema)


def rows_of(
    folder: TableFolder, files: Iterable[DataFile], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of several files sequentially."""
    for file in files:
        yield from rows(folder, file, schema)


def decode_rows(
    folder: TableFolder, file: DataFile, data: bytes, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in a file's bytes."""
    with _translate_errors(folder, file), pq.ParquetFile(pa.BufferReader(data)) as parquet:
        for batch in parquet.iter_batches():
            yield fit(batch, schema)


def columns(folder: TableFolder, file: DataFile, data: bytes, schema: pa.Schema) -> pa.Table:
    """Return the selected columns of a file's bytes."""
    with _translate_errors(folder, file), pq.ParquetFile(pa.BufferReader(data)) as parquet:
        there = parquet.schema_arrow
        indexes = [at for at in (index_of(there, field) for field in schema) if at >= 0]
        batches = parquet.iter_batches(columns=[there.field(at).name for at in indexes])
        return pa.Table.from_batches([fit(batch, schema) for batch in batches], schema)


@contextmanager
def _translate_errors(folder: TableFolder, file: DataFile) -> Iterator[None]:
    try:
        yield
    except pa.ArrowInvalid as error:
        raise Corrupt(f"{folder.address(file.path)}: no Parquet file: {error}") from error
