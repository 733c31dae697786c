"""AlterPartitionReassignments: refused, since partitions are in the store and not on brokers."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.topicdescription import replicas
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


@handles(ALTER_PARTITION_REASSIGNMENTS, mutates=False)
async def alter_partition_reassignments(
    call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Refuse to start or cancel a reassignment, since partitions are not stored on brokers."""
    await call.services.replica.barrier()
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_answer(call, topic.name, part) for part in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _answer(call: Call, name: str, part: ReassignablePartition) -> ReassignablePartitionResponse:
    answer = ReassignablePartitionResponse(
        partition_index=part.partition_index, error_code=ErrorCode.NONE
    )
    try:
        _check(call, name, part)
    except ApiError as error:
        answer.error_code, answer.error_message = error.code, error.text or None
    return answer


def _check(call: Call, name: str, part: ReassignablePartition) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = call.state.topics.by_name.get(name)
    if topic is None:
        raise ApiError(unknown, f"Unable to find a topic named {name}.")
    if not 0 <= part.partition_index < len(topic.partitions):
        raise ApiError(unknown, f"Unable to find partition {name}:{part.partition_index}.")
    if part.replicas is None:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "")
    leader = topic.partitions[part.partition_index].leader
    if part.replicas != replicas(topic, leader, call.state.brokers.nodes):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions are not stored on brokers, so none can be moved: every broker serves all",
        )
