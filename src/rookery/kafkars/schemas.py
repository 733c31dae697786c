"""The columns of kafkars' batches: rows, and the state of partitions."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_TIME: Final = pa.timestamp("ms", tz="UTC")
MESSAGE_COLUMNS: Final[dict[str, tuple[pa.DataType, bool]]] = {
    "key": (pa.binary(), True),
    "value": (pa.binary(), True),
    "topic": (pa.string(), False),
    "partition": (pa.int32(), False),
    "offset": (pa.int64(), False),
    "timestamp": (_TIME, False),
}
"""The type of each column of a row, and whether it can be null."""
_STATE: Final[dict[str, tuple[pa.DataType, bool]]] = {
    "topic": (pa.string(), False),
    "partition": (pa.int32(), False),
    "replay_start_offset": (pa.int64(), False),
    "replay_end_offset": (pa.int64(), False),
    "consumed_offset": (pa.int64(), False),
    "released_offset": (pa.int64(), False),
    "last_consumed_timestamp": (_TIME, True),
    "is_live": (pa.bool_(), False),
    "is_paused": (pa.bool_(), False),
}
MESSAGE_SCHEMA: Final = pa.schema([pa.field(name, *how) for name, how in MESSAGE_COLUMNS.items()])
"""The schema of the batches that `poll` returns."""
PARTITION_STATE_SCHEMA: Final = pa.schema([pa.field(name, *how) for name, how in _STATE.items()])
"""The schema of the batch that `partition_state` returns."""
NO_TIME: Final = pa.scalar(-1, pa.int64()).cast(_TIME)
"""The timestamp of a record without one."""


def get_message_schema() -> pa.Schema:
    """Return the schema of the batches that `poll` returns."""
    return MESSAGE_SCHEMA


def get_partition_state_schema() -> pa.Schema:
    """Return the schema of the batch that `partition_state` returns."""
    return PARTITION_STATE_SCHEMA
