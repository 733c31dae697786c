"""The columns that a pipeline adds to rows, and their former names.

All begin with `rookery_`. Engines reserve many names that begin with an underscore: Iceberg
reserves `_partition`, `_file`, `_pos`, `_deleted` and more, Delta `_change_type`, Spark
`_metadata`. A table with such a column can be written, but not read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PREFIX: Final = "rookery_"
TOPIC: Final = "rookery_topic"
PARTITION: Final = "rookery_partition"
OFFSET: Final = "rookery_offset"
TIMESTAMP: Final = "rookery_timestamp"
KEY: Final = "rookery_key"
WATERMARK: Final = "rookery_watermark"
DELETED: Final = "rookery_deleted"
OWN: Final = (TOPIC, PARTITION, OFFSET, TIMESTAMP, KEY, WATERMARK, DELETED)

_FORMER_PREFIX: Final = "_"
_ALWAYS: Final = (TOPIC, PARTITION, OFFSET, TIMESTAMP)
"""The columns that every silver row has."""


def former(name: str) -> str:
    """Return the former name of a column."""
    return _FORMER_PREFIX + name.removeprefix(PREFIX)


def renames(there: Iterable[str], wanted: Iterable[str]) -> dict[str, str]:
    """Return the columns of a table that have former names, with their new names.

    Args:
        there: the columns of the table.
        wanted: the columns of new rows. A column such as `_key` is renamed only if new rows have
            the corresponding column.
    """
    old, new = set(there), set(wanted)
    if not old.issuperset(map(former, _ALWAYS)) or not old.isdisjoint(_ALWAYS):
        return {}
    return {former(name): name for name in OWN if former(name) in old and name in new}
