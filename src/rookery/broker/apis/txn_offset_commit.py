"""TxnOffsetCommit: commits a group's offsets as part of a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rookery.broker.call import Call, handles
from rookery.broker.groups.offsets import CommitAuthor
from rookery.broker.groups.requests import check_group_id, reach_head
from rookery.broker.transactions import check_id, commit_offsets, convert_error, find_owned
from rookery.cluster.events.groupevents import OffsetCommitted
from rookery.cluster.events.txnevents import TransactionOffsetsCommitted
from rookery.cluster.state.txns import TransactionOwner
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_KNOWS_ABORTABLE: Final = 4
_JOINS: Final = 5
_MAX_METADATA: Final = 4096
_OF_MEMBERS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)


@handles(
    TXN_OFFSET_COMMIT,
    mutates=True,
)
async def txn_offset_commit(call: Call, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Add offsets of a group to the transaction; each partition has its own result."""
    check_group_id(request.group_id)
    transactional_id = check_id(request.transactional_id)
    if any(topic.name not in call.state.topics.by_name for topic in request.topics):
        await reach_head(call)
    answers = [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[_answer(call, topic.name, part) for part in topic.partitions],
        )
        for topic in request.topics
    ]
    wanted = list(_select_offsets(call, request, answers))
    if all(_is_unknown(part) for topic in answers for part in topic.partitions):
        # As in Kafka, neither the transaction nor the member is checked.
        return TxnOffsetCommitResponse(topics=answers)
    event = TransactionOffsetsCommitted(
        transactional_id=transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        group_id=request.group_id,
        group_epoch=-1,
        offsets=[offset for _, offset in wanted],
        joins=call.version >= _JOINS,
    )
    who = CommitAuthor(
        request.group_id, request.member_id, request.generation_id, request.group_instance_id
    )
    try:
        codes = await commit_offsets(call, who, event)
    except ApiError as error:
        if error.code in _OF_MEMBERS:
            error = await _find_producer_fault(call, event) or error
        _refuse(answers, _translate_error(call, error).code)
        return TxnOffsetCommitResponse(topics=answers)
    for (answer, _), code in zip(wanted, codes, strict=True):
        answer.error_code = code
    return TxnOffsetCommitResponse(topics=answers)


async def _find_producer_fault(call: Call, event: TransactionOffsetsCommitted) -> ApiError | None:
    """Return what is wrong with the producer, which Kafka checks before the member."""
    await reach_head(call)
    writer = TransactionOwner(event.producer_id, event.producer_epoch)
    try:
        find_owned(call, event.transactional_id, writer)
    except ApiError as error:
        return error
    return None


def _is_unknown(part: TxnOffsetCommitResponsePartition) -> bool:
    return part.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _refuse(answers: list[TxnOffsetCommitResponseTopic], code: ErrorCode) -> None:
    """Give an error of the transaction or the group to all partitions that exist."""
    for topic in answers:
        for part in topic.partitions:
            if not _is_unknown(part):
                part.error_code = code


def _translate_error(call: Call, error: ApiError) -> ApiError:
    """Return the error as a group coordinator reports it."""
    if error.code is ErrorCode.INVALID_TXN_STATE and call.version >= _KNOWS_ABORTABLE:
        return ApiError(ErrorCode.TRANSACTION_ABORTABLE, error.text)
    return convert_error(error, knows_fenced=False)


def _answer(
    call: Call, name: str, part: TxnOffsetCommitRequestPartition
) -> TxnOffsetCommitResponsePartition:
    topic = call.state.topics.by_name.get(name)
    code = ErrorCode.NONE
    if topic is None or not 0 <= part.partition_index < len(topic.partitions):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif len((part.committed_metadata or "").encode()) > _MAX_METADATA:
        code = ErrorCode.OFFSET_METADATA_TOO_LARGE
    return TxnOffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code)


def _select_offsets(
    call: Call, request: TxnOffsetCommitRequest, answers: list[TxnOffsetCommitResponseTopic]
) -> Iterator[tuple[TxnOffsetCommitResponsePartition, OffsetCommitted]]:
    """Yield the offsets that can be committed, each with its entry in the response."""
    for asked, answer in zip(request.topics, answers, strict=True):
        topic = call.state.topics.by_name.get(asked.name)
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
                    ),
                )
