"""The rule by which all formats decide whether to commit a batch."""

from __future__ import annotations

from rookery.errors import ConfigError
from rookery.tables.port import BatchName


def is_new(table: str, last: BatchName | None, name: BatchName) -> bool:
    """Return whether a batch is not committed yet.

    Raises:
        ConfigError: the batch can be neither committed nor skipped.
    """
    if last is None:
        return True
    if last.query != name.query:
        raise ConfigError(
            f"table {table!r}: pipeline {name.pipeline!r} has written to it as query {last.query}"
            f" up to batch {last.batch}, and this is query {name.query}: its state was lost or is"
            " another one. Point `state` to the old one, give the pipeline another name to add"
            " to its rows, or remove the table to start again"
        )
    if name.batch < last.batch:
        raise ConfigError(
            f"table {table!r}: {name} comes after batch {last.batch} was committed:"
            " the pipeline's state is an old copy; restore the newest"
        )
    return name.batch > last.batch


def format_batch(name: BatchName) -> str:
    """Return the text that a table stores for a batch, under the pipeline's name."""
    return f"{name.query}:{name.batch}"


def read(pipeline: str, text: str) -> BatchName:
    """Parse the text that `format_batch` returned."""
    query, _, batch = text.rpartition(":")
    return BatchName(pipeline, query, int(batch))
