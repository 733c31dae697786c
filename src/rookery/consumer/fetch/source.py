"""Where rows come from: the port that a Kafka cluster and Rookery's own objects stand behind."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from rookery.consumer.checkpoint import Checkpoint, PartitionMark
from rookery.errors import Error
from rookery.model.partition import TopicPartition
from rookery.records.batch import BatchHeader

NOTHING: Final = memoryview(b"")


class Want(NamedTuple):
    """Where to go on reading in a partition, and how much."""

    place: TopicPartition
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    """That of the last batch read, by which a log that was cut back is found out."""


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """What was found in a partition."""

    place: TopicPartition
    offset: int
    """What was asked for."""
    data: memoryview = NOTHING
    headers: Sequence[BatchHeader] = ()
    """Of the whole batches in it, checked."""
    aborted: Sequence[tuple[int, int]] = ()
    """Producer ids and first offsets of aborted transactions."""
    high_watermark: int = -1
    last_stable_offset: int = -1
    next_offset: int = -1
    """Where to go on if there are no batches: their offsets may be known to be empty."""
    error: Error | None = None
    """Why there is no more than this."""
    is_skipped: bool = False
    """Whether there was no room for it, so that nothing is known."""
    cut_back_to: int = -1
    """Where the log ends by now, if what was read before is gone."""


class RowSource(Protocol):
    """Reads partitions. All calls are made on one event loop."""

    async def topics(
        self, names: Sequence[str], pattern: re.Pattern[str] | None
    ) -> dict[str, list[int]]:
        """Return the partitions of topics that are named or match, in the order named.

        Raises:
            ApiError: one that is named does not exist.
            Unavailable: the source is out of reach.
        """

    async def find(
        self, specs: Mapping[TopicPartition, int], *, is_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Return offsets: of EARLIEST, LATEST or the first record not older than a time.

        It is -1 where no record is that young. With `is_committed`, LATEST is the last stable one.
        """

    async def committed(
        self, group: str, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionMark]:
        """Return how far a group has read; partitions without an offset are left out."""

    async def commit(self, group: str, checkpoint: Checkpoint) -> None:
        """Store how far a group has read."""

    async def locate(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Hashable]:
        """Return who must be asked for each partition, as far as that is known.

        What has the same answer can be fetched together.

        Raises:
            ApiError: a topic does not exist.
            Unavailable: the source is out of reach.
        """

    def forget(self, place: TopicPartition) -> None:
        """Look anew for who must be asked."""

    async def fetch(
        self, lane: Hashable, wants: Sequence[Want], max_bytes: int, wait_ms: int
    ) -> list[PartitionAnswer]:
        """Read from some partitions; wait a while if there is nothing.

        Partitions that have no news may be missing in the result.

        Raises:
            Unavailable, ApiError: nothing can be read there; look anew for who must be asked.
        """

    async def close(self) -> None:
        """Let everything go."""
