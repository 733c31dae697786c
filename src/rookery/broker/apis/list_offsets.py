"""ListOffsets: the log start and end of a partition, and the offset for a timestamp.

There is one tier so far: the local log starts at the log start, and nothing is tiered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from types import MappingProxyType
from typing import Final

from rookery.broker.call import Call, handles
from rookery.cluster.state.partition import Partition
from rookery.errors import ApiError, Error, ErrorCode, code_of
from rookery.log.read import times
from rookery.log.read.tail import Key
from rookery.log.read.times import TimedRecord
from rookery.model.offset import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from rookery.wire.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

log = logging.getLogger(__name__)

_EARLIEST_PENDING: Final = -6
# The special (negative) timestamps, and the version that introduced each.
_SINCE: Final = MappingProxyType(
    {
        LATEST: 1,
        EARLIEST: 1,
        MAX_TIMESTAMP: 7,
        EARLIEST_LOCAL: 8,
        LATEST_TIERED: 9,
        _EARLIEST_PENDING: 11,
    }
)
_UNKNOWN: Final = TimedRecord(-1, -1)
_SEARCHES_AT_ONCE: Final = 8


@handles(
    LIST_OFFSETS,
    versions=range(1, 12),
    mutates=False,
)
async def list_offsets(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Return offsets by timestamp, as of the log's head.

    The barrier makes appends of other brokers visible.
    """
    await call.services.replica.barrier()
    counts = Counter(
        (topic.name, part.partition_index) for topic in request.topics for part in topic.partitions
    )
    bound = asyncio.Semaphore(_SEARCHES_AT_ONCE)
    is_committed = bool(request.isolation_level)

    async def answer(name: str, part: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        if counts[name, part.partition_index] > 1:
            return _refuse(part, ErrorCode.INVALID_REQUEST)
        try:
            async with bound:
                return await _find(call, name, part, is_committed=is_committed)
        except Error as error:
            text = call.services.reader.describe(error)
            log.info("ListOffsets of %s-%d: %s", name, part.partition_index, text)
            return _refuse(part, code_of(error))

    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=await asyncio.gather(
                    *(answer(topic.name, part) for part in topic.partitions)
                ),
            )
            for topic in request.topics
        ]
    )


async def _find(
    call: Call, name: str, part: ListOffsetsPartition, *, is_committed: bool
) -> ListOffsetsPartitionResponse:
    if part.timestamp < 0 and call.version < _SINCE.get(part.timestamp, 2**15):
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"time {part.timestamp} has no meaning in version {call.version}",
        )
    topic = call.state.topics.by_name.get(name)
    if topic is None or not 0 <= part.partition_index < len(topic.partitions):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
    partition = topic.partitions[part.partition_index]
    if part.current_leader_epoch > partition.leader_epoch:
        raise ApiError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"epoch {part.current_leader_epoch} is not known yet, only {partition.leader_epoch}",
        )
    # The limit is the end that is readable now, even if more is written during the search.
    readable = partition.last_stable_offset if is_committed else partition.next_offset
    key = (topic.id, part.partition_index)
    place = await _look(call, key, partition, part.timestamp, readable)
    if place.offset > readable or (place.offset == readable and place.timestamp >= 0):
        place = _UNKNOWN
    return ListOffsetsPartitionResponse(
        partition_index=part.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=place.timestamp,
        offset=place.offset,
        leader_epoch=_epoch(partition, place.offset),
    )


def _epoch(partition: Partition, offset: int) -> int:
    if offset < 0:
        return -1
    return partition.leader_epoch if offset >= partition.next_offset else partition.epoch_at(offset)


async def _look(
    call: Call, key: Key, partition: Partition, time_ms: int, readable: int
) -> TimedRecord:
    if time_ms == LATEST:
        return TimedRecord(readable, -1)
    if time_ms in {EARLIEST, EARLIEST_LOCAL}:
        return TimedRecord(partition.log_start, -1)
    if time_ms in {LATEST_TIERED, _EARLIEST_PENDING}:
        return _UNKNOWN
    reader = call.services.reader
    if time_ms == MAX_TIMESTAMP:
        return await times.highest(reader, key, partition) or _UNKNOWN
    return await times.first_at(reader, key, partition, time_ms) or _UNKNOWN


def _refuse(part: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=part.partition_index, error_code=code)
