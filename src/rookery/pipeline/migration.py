"""Tables and batches whose columns have the names of an earlier release."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from rookery.clock import SystemRandom
from rookery.errors import ConfigError
from rookery.pipeline.manifests import StagedFiles
from rookery.pipeline.names import renames
from rookery.pipeline.spec import Pipeline, Sink
from rookery.tables.open import open_table
from rookery.tables.port import BatchName, Table

log = logging.getLogger(__name__)

COMMAND: Final = "rookery pipeline migrate FILE"
_REWRITTEN: Final = ("parquet", "delta")
"""Formats that find columns in files by their names."""


@dataclass(frozen=True, slots=True)
class Migration:
    """A table whose columns are to be renamed."""

    sink: Sink
    columns: Mapping[str, str]
    """Old names and new ones."""

    @property
    def place(self) -> str:
        """Where the table is, without what may be secret."""
        return f"{self.sink.format} {self.sink.location.partition('?')[0]}"

    def run(self, *, may_rewrite: bool = False) -> None:
        """Rename them.

        Raises:
            ConfigError: that means to write all files anew, and may not be done here.
        """
        if not may_rewrite:
            self.check()
        open_table(self.sink.table()).rename(self.columns)
        log.info("table %s: renamed %s", self.place, self._names)

    def check(self) -> None:
        """See that the columns can be renamed without writing files.

        Raises:
            ConfigError: they cannot.
        """
        if self.sink.format in _REWRITTEN:
            raise ConfigError(
                f"table {self.place}: its columns have the names of an earlier release, and this"
                f" format cannot rename them ({self._names}) without writing all files anew: run"
                f" `{COMMAND}` once, with the pipeline stopped"
            )

    @property
    def _names(self) -> str:
        return ", ".join(f"{old} to {new}" for old, new in self.columns.items())


def migrations(pipeline: Pipeline, sinks: Mapping[int, pa.Schema]) -> Iterator[Migration]:
    """Yield the tables whose columns are to be renamed before a batch can be committed.

    Args:
        pipeline: what is declared.
        sinks: by number, the columns of a batch's files.
    """
    for number, schema in sinks.items():
        sink = pipeline.sinks[number]
        there = open_table(sink.table()).schema() if has_own_columns(sink) else None
        columns = renames(there.names, schema.names) if there is not None else {}
        if columns:
            yield Migration(sink, columns)


def rename_former(table: Table, schema: pa.Schema) -> None:
    """Rename the columns of a table that has former names of these, as gold of all of silver has.

    A format may write all files anew for it, which is no more than to make gold once more.
    """
    there = table.schema()
    if columns := renames(there.names, schema.names) if there is not None else {}:
        table.rename(columns)


def has_own_columns(sink: Sink) -> bool:
    """Whether a table has columns that the pipeline adds to rows, and can be renamed."""
    return sink.layer in ("silver", "late") and sink.format != "topic"


def restaged(table: Table, name: BatchName, staged: StagedFiles, wanted: pa.Schema) -> StagedFiles:
    """Return what a batch has for a table, staged once more if it has the former names."""
    schema = staged.arrow_schema()
    columns = renames(schema.names, wanted.names)
    if not columns:
        return staged
    after = pa.schema([field.with_name(columns.get(field.name, field.name)) for field in schema])
    rows = (one.rename_columns(after.names) for one in table.read_staged(staged.files, schema))
    attempt = f"renamed-{SystemRandom().token(4).hex()}"
    return StagedFiles.of(tuple(table.stage(name, rows, after, attempt)), after)
