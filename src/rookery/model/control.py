"""What control records say: the log's own words, which no consumer gets to see."""

from __future__ import annotations

from enum import IntEnum


class ControlRecordType(IntEnum):
    """What a control record means; its number stands in the key, and higher ones are Kafka's."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
