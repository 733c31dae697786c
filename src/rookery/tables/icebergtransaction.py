"""A change of an Iceberg table whose cost does not grow with every look at it.

pyiceberg copies all that is known of a table, every snapshot of it, each time one of its own parts
asks a transaction for the table's state: some twenty times a commit. With hundreds of snapshots a
commit takes a second that way.
"""

from __future__ import annotations

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate


class OneLook(Transaction):
    """A transaction that makes the table's state anew only after a change."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._seen: tuple[TableMetadata, tuple[TableUpdate, ...]] | None = None
        self._state: TableMetadata = table.metadata

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's state with the changes so far."""
        before, updates = self._table.metadata, self._updates
        if self._seen is None or self._seen[0] is not before or self._seen[1] is not updates:
            self._state, self._seen = super().table_metadata, (before, updates)
        return self._state
