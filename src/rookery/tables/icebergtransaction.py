"""A change of an Iceberg table that is tried once, and whose cost does not grow with every look.

If another writer was faster, pyiceberg commits again by itself, as often as a property of the table
says. It does not look whether the batch is there by then. That property belongs to all writers of
the table, so it stays as it is: the transaction has its own copy.

pyiceberg copies all that is known of a table, every snapshot of it, each time one of its own parts
asks a transaction for the table's state: some twenty times a commit. With hundreds of snapshots a
commit takes a second that way. What is kept instead depends on private fields of pyiceberg's
class, as versions 0.11 and 0.12 have them; with another one, nothing is kept, and the log says so.
"""

from __future__ import annotations

import logging
from copy import copy
from functools import cache
from typing import Final

import pyiceberg
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate

log = logging.getLogger(__name__)

_CHECKED: Final = frozenset({"0.11", "0.12"})


@cache
def is_known(version: str) -> bool:
    """Tell whether pyiceberg's transaction has the fields that we look at; log once if not."""
    if ".".join(version.split(".")[:2]) in _CHECKED:
        return True
    log.warning("pyiceberg %s is not known: commits to tables of many snapshots are slow", version)
    return False


class OneLook(Transaction):
    """A transaction that is tried once, and makes the table's state anew only after a change."""

    def __init__(self, table: Table) -> None:
        own = copy(table)
        properties = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
        own.metadata = table.metadata.model_copy(update={"properties": properties})
        super().__init__(own)
        self._seen: tuple[TableMetadata, tuple[TableUpdate, ...]] | None = None
        self._state: TableMetadata = own.metadata

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's state with the changes so far."""
        if not is_known(pyiceberg.__version__):
            return super().table_metadata
        before, updates = self._table.metadata, self._updates
        if self._seen is None or self._seen[0] is not before or self._seen[1] is not updates:
            self._state, self._seen = super().table_metadata, (before, updates)
        return self._state
