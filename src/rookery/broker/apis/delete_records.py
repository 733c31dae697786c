"""DeleteRecords: advances the log start of partitions and so deletes the records before it."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.decisions import decide
from rookery.cluster.events.topicevents import LogStartMoved
from rookery.errors import ErrorCode
from rookery.wire.messages.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)

_HIGH_WATERMARK = -1


@handles(DELETE_RECORDS, mutates=True)
async def delete_records(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Advance the log start of partitions, and return the new log starts."""
    await call.services.replica.barrier()
    moves: list[LogStartMoved] = []
    results: list[DeleteRecordsPartitionResult] = []
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_check(call, topic, part, moves, results) for part in topic.partitions],
            )
            for topic in request.topics
        ]
    )
    if moves:
        outcomes = await decide(call, moves, request.timeout_ms)
        for result, outcome in zip(results, outcomes, strict=True):
            result.error_code = outcome.error
            if outcome.error is ErrorCode.NONE:
                result.low_watermark = outcome.value
    return response


def _check(
    call: Call,
    data: DeleteRecordsTopic,
    part: DeleteRecordsPartition,
    moves: list[LogStartMoved],
    results: list[DeleteRecordsPartitionResult],
) -> DeleteRecordsPartitionResult:
    """Add the move to `moves` if it is valid; the caller completes the result afterwards."""
    result = DeleteRecordsPartitionResult(
        partition_index=part.partition_index, low_watermark=-1, error_code=ErrorCode.NONE
    )
    topic = call.state.topics.by_name.get(data.name)
    if topic is None or not 0 <= part.partition_index < len(topic.partitions):
        result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif not call.services.rules.of(call.state, topic).configs.is_deleted:
        # A compacted topic guarantees that the last record of every key is kept.
        result.error_code = ErrorCode.POLICY_VIOLATION
    elif part.offset < _HIGH_WATERMARK:
        result.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
    else:
        moves.append(
            LogStartMoved(topic_id=topic.id, partition=part.partition_index, offset=part.offset)
        )
        results.append(result)
    return result
