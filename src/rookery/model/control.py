"""Types of control records, which the log itself writes and consumers never see."""

from __future__ import annotations

from enum import IntEnum


class ControlRecordType(IntEnum):
    """The meaning of a control record; the number is in the key, and higher ones are Kafka's."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
