"""Publishes the progress of a brokerless reader as group offsets, so that lag tools show it."""

from __future__ import annotations

from collections.abc import Mapping

from rookery.cluster.entry import divide_offsets
from rookery.cluster.events.groupevents import OffsetCommitted, OffsetsPublished
from rookery.direct.log import DirectLog
from rookery.errors import ApiError, ErrorCode

_MAX_ID_BYTES = 32_767


async def publish_offsets(
    log: DirectLog, group_id: str, offsets: Mapping[tuple[bytes, int], int]
) -> None:
    """Publish the next offset to read in each partition, by topic id and partition.

    Deleted partitions are skipped.

    Raises:
        ApiError: the group has members, which commit their own offsets.
        Unavailable: the cluster log cannot be reached.
    """
    if not group_id or len(group_id.encode()) > _MAX_ID_BYTES:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, f"group {group_id[:80]!r}: not a group's name")
    rows = [
        OffsetCommitted(
            topic_id=topic_id, partition=index, offset=offset, leader_epoch=-1, metadata=""
        )
        for (topic_id, index), offset in sorted(offsets.items())
    ]
    for part in divide_offsets(rows):
        event = OffsetsPublished(group_id=group_id, offsets=part)
        [outcome] = await log.propose([event])
        if outcome.error:
            raise ApiError(
                outcome.error,
                f"group {group_id!r} has members, or had: they commit offsets of their own; "
                "publish under another group's name",
            )
