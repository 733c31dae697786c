"""OffsetCommit: commits the offsets of a group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rookery.broker.call import Call, handles
from rookery.broker.groups.offsets import CommitAuthor, commit
from rookery.broker.groups.requests import check_group_id, reach_head
from rookery.cluster.events.groupevents import OffsetCommitted
from rookery.cluster.state.topics import Topic
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_BY_ID: Final = 10
_MAX_METADATA: Final = 4096
_UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@handles(
    OFFSET_COMMIT,
    versions=range(2, 11),
    mutates=True,
    is_served_read_only=True,
)
async def offset_commit(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commit offsets of a group; each partition has its own result."""
    check_group_id(request.group_id)
    if any(_find(call, topic) is None for topic in request.topics):
        await reach_head(call)
    answers = [_answer(call, topic) for topic in request.topics]
    wanted = list(_select_offsets(call, request, answers))
    if not wanted:
        # As in Kafka, the member is not checked if there is nothing to commit.
        return OffsetCommitResponse(topics=answers)
    author = CommitAuthor(
        request.group_id,
        request.member_id,
        request.generation_id_or_member_epoch,
        request.group_instance_id,
        call.version,
    )
    offsets = [event for _, event in wanted]
    try:
        codes = await commit(call.services.groups, call.services.replica, author, offsets)
    except ApiError as error:
        _refuse(answers, error.code)
        return OffsetCommitResponse(topics=answers)
    for (answer, _), code in zip(wanted, codes, strict=True):
        answer.error_code = code
    return OffsetCommitResponse(topics=answers)


def _refuse(answers: list[OffsetCommitResponseTopic], code: ErrorCode) -> None:
    """Give a group's error to all partitions that exist, as in Kafka; the others are not asked."""
    for topic in answers:
        for part in topic.partitions:
            if part.error_code not in _UNKNOWN:
                part.error_code = code


def _find(call: Call, asked: OffsetCommitRequestTopic) -> Topic | None:
    topics = call.state.topics
    by_id = call.version >= _BY_ID
    return topics.by_id.get(asked.topic_id) if by_id else topics.by_name.get(asked.name)


def _answer(call: Call, asked: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
    topic = _find(call, asked)
    unknown = (
        ErrorCode.UNKNOWN_TOPIC_ID
        if call.version >= _BY_ID
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    return OffsetCommitResponseTopic(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[
            OffsetCommitResponsePartition(
                partition_index=part.partition_index,
                error_code=unknown if topic is None else _check(topic, part),
            )
            for part in asked.partitions
        ],
    )


def _check(topic: Topic, part: OffsetCommitRequestPartition) -> ErrorCode:
    if not 0 <= part.partition_index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len((part.committed_metadata or "").encode()) > _MAX_METADATA:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _select_offsets(
    call: Call, request: OffsetCommitRequest, answers: list[OffsetCommitResponseTopic]
) -> Iterator[tuple[OffsetCommitResponsePartition, OffsetCommitted]]:
    """Yield the offsets that can be committed, each with its entry in the response."""
    for asked, answer in zip(request.topics, answers, strict=True):
        topic = _find(call, asked)
        for part, verdict in zip(asked.partitions, answer.partitions, strict=True):
            if topic is not None and verdict.error_code is ErrorCode.NONE:
                yield (
                    verdict,
                    OffsetCommitted(
                        topic_id=topic.id,
                        partition=part.partition_index,
                        offset=part.committed_offset,
                        leader_epoch=part.committed_leader_epoch,
                        metadata=part.committed_metadata or "",
                        retention_ms=request.retention_time_ms,
                    ),
                )
