"""The interface of kafkars (now kafkarrow), implemented on Rookery's ordered stream.

    manager = ConsumerManager(
        {"bootstrap.servers": "localhost:9092"},
        [SourceTopic.from_relative_time("orders", 3_600_000)],
        batch_size=10_000,
    )
    while not manager.is_live():
        table = manager.poll(timeout_ms=100)

The public names and the positions of arguments are those of kafkarrow. `cutoff_ms`, which kafkars
took as the third positional argument, is keyword-only.

This implementation keeps guarantees that kafkars documented but did not keep. Up to the end that
each partition had at the start, rows are ordered by time across all partitions, even if one broker
is slow. Memory is bounded in bytes as well as in rows. `is_live` becomes true when all rows have
been returned, not when they have been seen. The manager never joins a group and never commits.

A partition that has reached its end does not hold back the others. Rows that arrive later are
therefore returned immediately, in order of arrival.

Edge cases:

- a partition without a commit is read from its beginning (`from_committed`);
- a time after the last record starts at the end, so the partition is live immediately;
- an unknown topic, a topic that is named twice, and an empty topic list raise immediately;
- a topic without records is live immediately;
- a record without a timestamp has Kafka's -1, and is ordered after the record before it.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from rookery.kafkars.manager import ConsumerManager, PartitionInfo
from rookery.kafkars.schemas import (
    MESSAGE_SCHEMA,
    PARTITION_STATE_SCHEMA,
    get_message_schema,
    get_partition_state_schema,
)
from rookery.kafkars.sourcetopic import SourceTopic, validate_source_topic

__all__ = [
    "MESSAGE_SCHEMA",
    "PARTITION_STATE_SCHEMA",
    "ConsumerManager",
    "PartitionInfo",
    "SourceTopic",
    "__version__",
    "get_message_schema",
    "get_partition_state_schema",
    "validate_source_topic",
]

__version__: Final = version("rookery")
"""The version of Rookery."""
