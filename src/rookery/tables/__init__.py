"""Tables with exactly-once batches: Parquet with manifests, Iceberg, Delta, DuckDB.

Data files are written where the data is (`stage`). The driver adds them to a table under the
batch's name (`commit`). A batch that is committed again is not added again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookery.exports import lazy_exports

if TYPE_CHECKING:
    from rookery.clock import Time
    from rookery.tables.open import open_table
    from rookery.tables.port import (
        BatchName,
        DataFile,
        Run,
        Table,
        TableSnapshot,
        TableSpec,
        TableTask,
        UpkeepPolicy,
        UpkeepResult,
        Upsert,
    )

__all__ = [
    "BatchName",
    "DataFile",
    "Run",
    "Table",
    "TableSnapshot",
    "TableSpec",
    "TableTask",
    "Time",
    "UpkeepPolicy",
    "UpkeepResult",
    "Upsert",
    "open_table",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "rookery.clock": ["Time"],
            "rookery.tables.open": ["open_table"],
            "rookery.tables.port": [
                "BatchName",
                "DataFile",
                "Run",
                "Table",
                "TableSnapshot",
                "TableSpec",
                "TableTask",
                "UpkeepPolicy",
                "UpkeepResult",
                "Upsert",
            ],
        },
    )
