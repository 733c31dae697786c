"""The errors of a stream, each with the coordinates of the row or partition at fault.

Like all Rookery errors, each is one of the classes in `rookery.errors`, which differ in what the
caller does next. A fault is raised when the stream cannot continue without the partition at fault.
All rows before it have been returned, and the next call retries from the same position.
"""

from __future__ import annotations

from collections.abc import Sequence

from rookery.errors import ConfigError, Corrupt, Error, Unavailable
from rookery.model.partition import TopicPartition


class PartitionFault(Error):  # noqa: N818 (the name says what happened)
    """One partition failed at an offset."""

    def __init__(self, place: TopicPartition, offset: int, text: str) -> None:
        super().__init__(f"{place.text}, offset {offset}: {text}")
        self.topic = place.topic
        self.partition = place.partition
        self.offset = offset

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


class OffsetTruncated(PartitionFault):
    """Retention overtook the reader: requested rows were deleted."""

    def __init__(self, place: TopicPartition, wanted: int, earliest: int) -> None:
        super().__init__(
            place,
            wanted,
            f"the log now begins at {earliest}, so {earliest - wanted} offsets are lost; read "
            "faster, keep them longer (retention.ms), or continue with on_truncation='earliest'",
        )
        self.wanted = wanted
        self.earliest = earliest
        self.lost_count = earliest - wanted


class LogTruncated(PartitionFault):
    """An unclean election truncated the log below the read position: returned rows are lost."""

    def __init__(self, place: TopicPartition, position: int, end: int) -> None:
        super().__init__(
            place,
            position,
            f"the log was truncated to {end}: later rows were read and no longer exist; undo what "
            "was derived from them, then start again",
        )
        self.end = end


class CorruptBatch(PartitionFault, Corrupt):
    """A batch's checksum or format is wrong."""


class TopicGone(PartitionFault):
    """The topic was deleted, or was deleted and created again."""


class RecordTooLarge(PartitionFault, ConfigError):  # noqa: N818 (the name says what happened)
    """A record or batch is larger than `max_batch_bytes` allows."""


class LateRow(PartitionFault):
    """A row arrived late, and `late="raise"` is set."""

    def __init__(self, place: TopicPartition, offset: int, lateness_ms: int) -> None:
        super().__init__(
            place, offset, f"it is {lateness_ms} ms late; allow for it with lateness=, or late="
        )
        self.lateness_ms = lateness_ms


class MissingTimestamp(PartitionFault):
    """A row has no time, and `missing_timestamp="raise"` is set."""


class Undecodable(PartitionFault):
    """A key or value cannot be decoded, and `on_decode_error="raise"` is set."""


class OutOfMemory(ConfigError):  # noqa: N818 (the name says what happened)
    """The rows that must be held at the same time need more than `memory` allows."""

    def __init__(self, needed: int, memory: int, places: Sequence[TopicPartition]) -> None:
        some = ", ".join(place.text for place in places[:5])
        more = f" and {len(places) - 5} more" if len(places) > 5 else ""
        super().__init__(
            f"memory={memory}: {needed} bytes are needed to hold the next rows of every partition "
            f"({some}{more}); raise memory to that, or give a spill folder"
        )
        self.needed = needed
        self.memory = memory
        self.places = tuple(places)


class UnheardPartitions(Unavailable):
    """Partitions that the merge waits for did not answer within the deadline."""

    def __init__(self, places: Sequence[TopicPartition], deadline_ms: int, why: str) -> None:
        some = ", ".join(place.text for place in places[:5])
        super().__init__(f"no answer for {some} in {deadline_ms} ms; {why}")
        self.places = tuple(places)


class Misuse(Error):  # noqa: N818 (the name says what happened)
    """The stream is used from two threads, after a fork, or after it was closed."""
