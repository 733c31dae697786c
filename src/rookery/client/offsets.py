"""Looks up offsets of partitions: log start, log end, and offsets by time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rookery.client.connect.connections import Link
from rookery.client.connect.metadata import PartitionLeader
from rookery.client.connect.router import Router, by_topic
from rookery.errors import ApiError, ErrorCode
from rookery.model.offset import LATEST, MAX_TIMESTAMP
from rookery.model.partition import TopicPartition
from rookery.wire.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

# The version from which each special timestamp is supported (KIP-734, KIP-405, KIP-1005).
_SINCE: Final = {MAX_TIMESTAMP: 7, -4: 8, -5: 9, -6: 11}


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """The offset found; -1 if no record is that recent."""

    offset: int
    timestamp: int = -1
    """The record's timestamp in milliseconds; -1 for a log start or end."""
    leader_epoch: int = -1


class OffsetQueries:
    """Requests offsets from leaders."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def find(
        self,
        specs: Mapping[TopicPartition, int],
        *,
        committed: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """Find an offset in each partition.

        Args:
            specs: EARLIEST, LATEST, MAX_TIMESTAMP, or a time in milliseconds: the first record
                that is not older.
            committed: LATEST means the last stable offset.
            timeout_ms: for the whole call.
        """
        deadline = self._router.retrier.deadline(timeout_ms)

        async def ask(
            link: Link, group: list[PartitionLeader], request_ms: int
        ) -> Mapping[TopicPartition, ListedOffset | ApiError]:
            lowest = max(_SINCE.get(specs[row.place], 1) for row in group)
            version = link.versions.choose(LIST_OFFSETS, lowest=max(lowest, 2 if committed else 1))
            request = _request(group, specs, committed=committed, timeout_ms=request_ms)
            response = await link.call(LIST_OFFSETS, version, request, request_ms)
            return {
                TopicPartition(topic.name, row.partition_index): _read_offset(link, topic.name, row)
                for topic in response.topics
                for row in topic.partitions
            }

        names = ", ".join(place.text for place in list(specs)[:3])
        return await self._router.ask_leaders(f"list offsets of {names}", specs, ask, deadline)

    async def resolve(self, place: TopicPartition, offset: int) -> int:
        """Resolve EARLIEST, LATEST and other special values; return other offsets unchanged."""
        if offset >= 0:
            return offset
        return (await self.find({place: offset}))[place].offset

    async def end(self, place: TopicPartition, *, committed: bool = False) -> int:
        """Return the offset of the next record, or the last stable offset."""
        return (await self.find({place: LATEST}, committed=committed))[place].offset


def _request(
    group: Iterable[PartitionLeader],
    specs: Mapping[TopicPartition, int],
    *,
    committed: bool,
    timeout_ms: int,
) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1 if committed else 0,
        timeout_ms=timeout_ms,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=row.place.partition,
                        current_leader_epoch=row.leader_epoch,
                        timestamp=specs[row.place],
                    )
                    for row in rows
                ],
            )
            for topic, _, rows in by_topic(group)
        ],
    )


def _read_offset(
    link: Link, topic: str, row: ListOffsetsPartitionResponse
) -> ListedOffset | ApiError:
    if row.error_code is ErrorCode.NONE:
        return ListedOffset(row.offset, row.timestamp, row.leader_epoch)
    return ApiError(
        row.error_code,
        f"offsets of {topic}-{row.partition_index} from {link.name}: {row.error_code.sentence}",
    )
