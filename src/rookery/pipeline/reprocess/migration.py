"""Migration of tables and batches whose columns have the names of an earlier release."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from rookery.clock import SystemRandom
from rookery.errors import ConfigError
from rookery.pipeline.declaration.names import renames
from rookery.pipeline.declaration.spec import Pipeline, Sink
from rookery.pipeline.manifests import StagedFiles
from rookery.tables.open import open_table
from rookery.tables.port import BatchName, BatchTarget, TableContents

log = logging.getLogger(__name__)

COMMAND: Final = "rookery pipeline migrate FILE"
_REWRITTEN: Final = ("parquet", "delta")
"""Formats that resolve columns in files by name."""


@dataclass(frozen=True, slots=True)
class Migration:
    """A table whose columns must be renamed."""

    sink: Sink
    columns: Mapping[str, str]
    """New names by old names."""

    @property
    def place(self) -> str:
        """The location of the table, without secrets."""
        return f"{self.sink.format} {self.sink.location.partition('?')[0]}"

    def run(self, *, may_rewrite: bool = False) -> None:
        """Rename the columns.

        Raises:
            ConfigError: all files must be rewritten, and `may_rewrite` is not set.
        """
        if not may_rewrite:
            self.check()
        open_table(self.sink.table()).rename(self.columns)
        log.info("table %s: renamed %s", self.place, self._names)

    def check(self) -> None:
        """Check that the columns can be renamed without rewriting files.

        Raises:
            ConfigError: they cannot.
        """
        if self.sink.format in _REWRITTEN:
            raise ConfigError(
                f"table {self.place}: its columns have the names of an earlier release, and this"
                f" format cannot rename them ({self._names}) without writing all files again: run"
                f" `{COMMAND}` once, with the pipeline stopped"
            )

    @property
    def _names(self) -> str:
        return ", ".join(f"{old} to {new}" for old, new in self.columns.items())


def migrations(pipeline: Pipeline, sinks: Mapping[int, pa.Schema]) -> Iterator[Migration]:
    """Yield the tables whose columns must be renamed before a batch can be committed.

    Args:
        pipeline: the declaration.
        sinks: by number, the columns of a batch's files.
    """
    for number, schema in sinks.items():
        sink = pipeline.sinks[number]
        there = open_table(sink.table()).schema() if has_own_columns(sink) else None
        columns = renames(there.names, schema.names) if there is not None else {}
        if columns:
            yield Migration(sink, columns)


def rename_former(table: TableContents, schema: pa.Schema) -> None:
    """Rename columns that have former names, as in gold tables that select all of silver.

    Some formats rewrite all files for this, which costs no more than computing gold again.
    """
    there = table.schema()
    if columns := renames(there.names, schema.names) if there is not None else {}:
        table.rename(columns)


def has_own_columns(sink: Sink) -> bool:
    """Return whether a table has columns that the pipeline adds and that can be renamed."""
    return sink.layer in ("silver", "late") and sink.format != "topic"


def restage_files(
    table: BatchTarget, name: BatchName, staged: StagedFiles, wanted: pa.Schema
) -> StagedFiles:
    """Return a batch's files for a table, staged again if they have the former names."""
    schema = staged.arrow_schema()
    columns = renames(schema.names, wanted.names)
    if not columns:
        return staged
    after = pa.schema([field.with_name(columns.get(field.name, field.name)) for field in schema])
    rows = (batch.rename_columns(after.names) for batch in table.read_staged(staged.files, schema))
    attempt = f"renamed-{SystemRandom().token(4).hex()}"
    return StagedFiles.of(tuple(table.stage(name, rows, after, attempt)), after)
