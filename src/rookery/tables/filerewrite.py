"""Common parts of compaction and renaming of columns for tables of files.

Some files of the table are read, and others are written to replace them. The format then swaps them
in one commit, if the files that were read are still part of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from rookery.clock import SystemRandom
from rookery.tables import parquetfiles
from rookery.tables.copyonwrite import Swap
from rookery.tables.folder import TableFolder
from rookery.tables.port import DataFile, UpkeepPolicy


def compactions(live: Sequence[DataFile], policy: UpkeepPolicy) -> Iterator[list[DataFile]]:
    """Yield groups of files to merge into one file."""
    group: list[DataFile] = []
    for file in live:
        if file.bytes >= policy.small_bytes:
            continue
        if sum(member.bytes for member in group) + file.bytes > policy.target_bytes:
            if len(group) >= policy.min_files:
                yield group
            group = []
        group.append(file)
    if len(group) >= policy.min_files:
        yield group


def compact_files(
    folder: TableFolder,
    group: Sequence[DataFile],
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
) -> Swap:
    """Write the rows of a group of files as one file."""
    attempt = f"compacted-{SystemRandom().token(8).hex()}"
    return Swap(list(group), parquetfiles.stage(folder, batches, schema, attempt))


def rename_schema(schema: pa.Schema, columns: Mapping[str, str]) -> pa.Schema:
    """Return the schema with renamed columns."""
    return pa.schema([field.with_name(columns.get(field.name, field.name)) for field in schema])


def rename_columns(
    folder: TableFolder,
    live: Iterable[DataFile],
    schema: pa.Schema,
    columns: Mapping[str, str],
    written: dict[str, list[DataFile]],
) -> Swap:
    """Rewrite every file of a table with the new column names.

    `written` has the files of an earlier attempt, by the file that they replace.
    """
    swap, after = Swap([], []), rename_schema(schema, columns)
    for file in live:
        if file.path not in written:
            rows = (
                batch.rename_columns(after.names)
                for batch in parquetfiles.rows(folder, file, schema)
            )
            attempt = f"renamed-{SystemRandom().token(8).hex()}"
            written[file.path] = parquetfiles.stage(folder, rows, after, attempt)
        swap.removed.append(file)
        swap.added.extend(written[file.path])
    return swap
