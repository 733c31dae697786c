"""The port for sources of rows: a Kafka cluster, or Rookery's own objects."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from rookery.consumer.checkpoint import Checkpoint, PartitionMark
from rookery.errors import Error
from rookery.model.partition import TopicPartition
from rookery.records.batches import BatchHeader

NOTHING: Final = memoryview(b"")


class Want(NamedTuple):
    """The next offset to read in a partition, and how much to read."""

    place: TopicPartition
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    """The epoch of the last batch read, used to detect a truncated log."""


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """The result of a read from one partition."""

    place: TopicPartition
    offset: int
    """The requested offset."""
    data: memoryview = NOTHING
    headers: Sequence[BatchHeader] = ()
    """The headers of the whole batches in the data, verified."""
    aborted: Sequence[tuple[int, int]] = ()
    """Producer ids and first offsets of aborted transactions."""
    high_watermark: int = -1
    last_stable_offset: int = -1
    next_offset: int = -1
    """Where to continue if there are no batches, since offsets may be known to be empty."""
    error: Error | None = None
    """Why the data ends here."""
    is_skipped: bool = False
    """Whether there was no room for the partition, so that its state is unknown."""
    cut_back_to: int = -1
    """The end of the log, if it was truncated below the read position."""


class FetchSource(Protocol):
    """Reads partitions, as the feed does. All calls are made on one event loop."""

    async def find(
        self, specs: Mapping[TopicPartition, int], *, is_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Return the offsets for EARLIEST, LATEST or the first record not older than a time.

        The offset is -1 if no record is that recent. With `is_committed`, LATEST is the last stable
        offset.
        """

    async def locate(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Hashable]:
        """Return the lane of each partition, as far as it is known.

        Partitions with the same lane can be fetched together.

        Raises:
            ApiError: a topic does not exist.
            Unavailable: the source cannot be reached.
        """

    def forget(self, place: TopicPartition) -> None:
        """Discard the lane of a partition, so that it is looked up again."""

    async def fetch(
        self, lane: Hashable, wants: Sequence[Want], max_bytes: int, wait_ms: int
    ) -> list[PartitionAnswer]:
        """Read from partitions; wait for a while if there are no records.

        Partitions without news may be missing in the result.

        Raises:
            Unavailable, ApiError: the lane cannot be read; locate its partitions again.
        """


class GroupPositions(Protocol):
    """Keeps the positions that groups have committed."""

    async def committed(
        self, group: str, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionMark]:
        """Return a group's committed positions; partitions without one are left out."""

    async def commit(self, group: str, checkpoint: Checkpoint) -> None:
        """Commit a group's positions."""


class RowSource(FetchSource, GroupPositions, Protocol):
    """The whole source of a stream. All calls are made on one event loop."""

    async def topics(
        self, names: Sequence[str], pattern: re.Pattern[str] | None
    ) -> dict[str, list[int]]:
        """Return the partitions of topics, by name in the given order or by pattern.

        Raises:
            ApiError: a named topic does not exist.
            Unavailable: the source cannot be reached.
        """

    async def close(self) -> None:
        """Release all resources."""
