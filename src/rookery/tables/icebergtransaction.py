"""An Iceberg transaction that is attempted once and caches the table's metadata.

If another writer commits first, pyiceberg retries automatically, as often as a table property says.
It does not check whether the batch has been committed meanwhile. All writers of the table share
that property, so it is not changed: the transaction has its own copy.

pyiceberg copies all metadata of a table, with every snapshot, each time one of its own parts reads
the transaction's state: some twenty times per commit. With hundreds of snapshots a commit then
takes a second. The cache depends on private fields of pyiceberg's class in versions 0.11 and 0.12.
With another version nothing is cached, and a warning is logged.
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
    """Return whether pyiceberg's transaction has the expected fields; warn once if not."""
    if ".".join(version.split(".")[:2]) in _CHECKED:
        return True
    log.warning("pyiceberg %s is not known: commits to tables of many snapshots are slow", version)
    return False


class OneLook(Transaction):
    """A transaction that is attempted once, and recomputes the metadata only after a change."""

    def __init__(self, table: Table) -> None:
        own = copy(table)
        properties = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
        own.metadata = table.metadata.model_copy(update={"properties": properties})
        super().__init__(own)
        self._seen: tuple[TableMetadata, tuple[TableUpdate, ...]] | None = None
        self._state: TableMetadata = own.metadata

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with the changes so far."""
        if not is_known(pyiceberg.__version__):
            return super().table_metadata
        before, updates = self._table.metadata, self._updates
        if self._seen is None or self._seen[0] is not before or self._seen[1] is not updates:
            self._state, self._seen = super().table_metadata, (before, updates)
        return self._state
