"""Answers ListOffsets for virtual partitions: their first offset and their end."""

from __future__ import annotations

import asyncio
from typing import Final

from rookery.errors import ApiError, Corrupt, Error, ErrorCode
from rookery.model.offset import EARLIEST, EARLIEST_LOCAL, LATEST
from rookery.proxy.virtual.topicbook import TopicKind
from rookery.proxy.virtual.virtualfetch import READ_COMMITTED, refusal_of
from rookery.proxy.virtual.virtualtopics import VirtualTopics
from rookery.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_PATIENCE_SECONDS: Final = 10.0
_STARTS: Final = frozenset({EARLIEST, EARLIEST_LOCAL})


async def look_up_offsets(
    topics: VirtualTopics, request: ListOffsetsRequest, version: int
) -> ListOffsetsResponse:
    """Answer a request that names topics with virtual partitions only."""
    named = [(topic.name, part) for topic in request.topics for part in topic.partitions]
    is_committed = request.isolation_level == READ_COMMITTED
    rows = await asyncio.gather(
        *(_look_up(topics, name, part, version, is_committed=is_committed) for name, part in named)
    )
    responses = [ListOffsetsTopicResponse(name=each.name, partitions=[]) for each in request.topics]
    answers = iter(rows)
    for topic, response in zip(request.topics, responses, strict=True):
        response.partitions = [next(answers) for _ in topic.partitions]
    return ListOffsetsResponse(topics=responses)


async def _look_up(
    topics: VirtualTopics,
    name: str,
    part: ListOffsetsPartition,
    version: int,
    *,
    is_committed: bool,
) -> ListOffsetsPartitionResponse:
    row = ListOffsetsPartitionResponse(
        partition_index=part.partition_index, error_code=ErrorCode.NONE
    )
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            offset = await _find(topics, name, part, is_committed=is_committed)
    except ApiError as error:
        row.error_code = error.code
    except Corrupt:
        row.error_code = ErrorCode.CORRUPT_MESSAGE
    except (Error, TimeoutError):
        row.error_code = ErrorCode.LEADER_NOT_AVAILABLE
    else:
        row.offset = offset
        if version == 0:
            row.old_style_offsets = [offset]
    return row


async def _find(
    topics: VirtualTopics, name: str, part: ListOffsetsPartition, *, is_committed: bool
) -> int:
    """Return the offset that a partition is asked for.

    Raises:
        ApiError: it cannot be found here, with Kafka's code.
        Corrupt: the log is refused.
        Unavailable, TimeoutError: the leader does not answer.
    """
    entry = topics.book.find(name)
    assert entry is not None  # noqa: S101 (only such topics come here)
    if entry.kind is not TopicKind.VIRTUAL:
        raise ApiError(refusal_of(entry))
    physical, slot = entry.rule.remapper.virtual_to_physical(part.partition_index)
    log = topics.log(entry, physical)
    if part.timestamp in _STARTS:
        await log.check()
        log.raise_trouble()
        return 0
    if part.timestamp != LATEST:
        # Times are not looked up yet.
        raise ApiError(ErrorCode.INVALID_REQUEST)
    await log.catch_up()
    return log.index.stable(slot) if is_committed else log.index.counter(slot)
