"""What tables made of files have in common: upserts by copy-on-write, and compaction.

Both read some files of the table and write others in their place; the format then swaps them in
one commit, if those that were read are still there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rookery.clock import SystemRandom
from rookery.errors import ConfigError
from rookery.tables import staging
from rookery.tables.folder import Folder
from rookery.tables.port import MIB, DataFile, UpkeepPolicy, Upsert

_AT: Final = "__at"


class Swap(NamedTuple):
    """Files that take the place of others."""

    removed: list[DataFile]
    added: list[DataFile]


def upserted(
    folder: Folder,
    live: Sequence[DataFile],
    changes: Sequence[DataFile],
    schema: pa.Schema,
    upsert: Upsert,
) -> Swap:
    """Write the files that the changes touch anew, with the changes in them.

    Raises:
        ConfigError: together they are larger than what was declared.
    """
    last = last_changes(folder, changes, schema, upsert)
    swap, read_bytes = Swap([], []), sum(file.bytes for file in changes)
    for file in live:
        data = folder.read(file.path)
        if not _touches(staging.columns(folder, file, data, upsert.keys), last, upsert.keys):
            continue
        read_bytes += file.bytes
        _bounded(folder, "the changes and the files they touch", read_bytes, upsert)
        rows = pa.Table.from_batches(staging.decoded(folder, file, data, schema), schema)
        swap.removed.append(file)
        swap.added.extend(_written(folder, _without(rows, last, upsert.keys), schema))
    swap.added.extend(_written(folder, kept(last, schema, upsert), schema))
    return swap


def kept(changes: pa.Table, schema: pa.Schema, upsert: Upsert) -> pa.Table:
    """Return the changes that do not delete, with the table's columns."""
    if upsert.deleted:
        deleted = pc.field(upsert.deleted)
        changes = changes.filter(deleted.is_null() | ~deleted)
    return changes.select(schema.names)


def compactions(live: Sequence[DataFile], policy: UpkeepPolicy) -> Iterator[list[DataFile]]:
    """Yield groups of files that are worth being one file."""
    group: list[DataFile] = []
    for file in live:
        if file.bytes >= policy.small_bytes:
            continue
        if sum(one.bytes for one in group) + file.bytes > policy.target_bytes:
            if len(group) >= policy.min_files:
                yield group
            group = []
        group.append(file)
    if len(group) >= policy.min_files:
        yield group


def compacted(folder: Folder, group: Sequence[DataFile], schema: pa.Schema) -> Swap:
    """Write a group of files as one."""
    batches = (batch for file in group for batch in staging.rows(folder, file, schema))
    return Swap(list(group), staging.stage(folder, batches, schema, _attempt("compacted")))


def change_schema(schema: pa.Schema, upsert: Upsert) -> pa.Schema:
    """Return the columns of a file of changes: the table's, and whether the row is deleted."""
    if not upsert.deleted or upsert.deleted in schema.names:
        return schema
    return schema.append(pa.field(upsert.deleted, pa.bool_()))


def table_schema(schema: pa.Schema, upsert: Upsert | None) -> pa.Schema:
    """Return the columns of the table that files of such a schema are for."""
    if upsert is None or upsert.deleted not in schema.names:
        return schema
    return schema.remove(schema.get_field_index(upsert.deleted))


def last_changes(
    folder: Folder, changes: Sequence[DataFile], schema: pa.Schema, upsert: Upsert
) -> pa.Table:
    """Return the last change of every key in files of changes, within what was declared."""
    _bounded(folder, "the changes", sum(file.bytes for file in changes), upsert)
    return latest(_table(folder, changes, change_schema(schema, upsert)), upsert)


def latest(changes: pa.Table, upsert: Upsert) -> pa.Table:
    """Keep the last change of every key.

    Raises:
        ConfigError: there is no such key, or a row has none.
    """
    for key in upsert.keys:
        if key not in changes.column_names:
            raise ConfigError(f"upsert by {key!r}: there is no such column")
        if changes[key].null_count:
            raise ConfigError(
                f"upsert by {key!r}: {changes[key].null_count} rows have none;"
                " add a check that such rows are dead letters"
            )
    if upsert.order:
        changes = changes.sort_by([(column, "ascending") for column in upsert.order])
    numbered = changes.append_column(_AT, pa.array(range(changes.num_rows), pa.int64()))
    last = numbered.group_by(list(upsert.keys)).aggregate([(_AT, "max")])
    return changes.take(last[f"{_AT}_max"])


def _touches(keys: pa.Table, changes: pa.Table, names: Sequence[str]) -> bool:
    return _without(keys, changes, names).num_rows < keys.num_rows


def _without(rows: pa.Table, changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    # Only keys are joined: Arrow cannot carry nested columns through a join.
    at = pa.array(range(rows.num_rows), pa.int64())
    numbered = rows.select(list(keys)).append_column(_AT, at)
    changed = changes.select(list(keys)).cast(numbered.select(list(keys)).schema)
    kept = numbered.join(changed, keys=list(keys), join_type="left anti")[_AT]
    return rows.take(kept.take(pc.sort_indices(kept)))


def _table(folder: Folder, files: Sequence[DataFile], schema: pa.Schema) -> pa.Table:
    batches = [batch for file in files for batch in staging.rows(folder, file, schema)]
    return pa.Table.from_batches(batches, schema)


def _written(folder: Folder, rows: pa.Table, schema: pa.Schema) -> list[DataFile]:
    batches = rows.select(schema.names).to_batches(max_chunksize=1 << 16)
    return staging.stage(folder, batches, schema, _attempt("upserted"))


def _attempt(kind: str) -> str:
    return f"{kind}-{SystemRandom().token(8).hex()}"


def _bounded(folder: Folder, what: str, size: int, upsert: Upsert) -> None:
    if size > upsert.max_bytes:
        raise ConfigError(
            f"table {folder.name!r}: {what} are {size // MIB} MiB, and one upsert takes at most"
            f" {upsert.max_bytes // MIB} MiB: let a batch be smaller (max_offsets_per_trigger),"
            " raise upsert_max_bytes if the driver has the memory, or append and take the last"
            " row of a key when reading"
        )
