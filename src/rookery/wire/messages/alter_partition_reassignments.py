"""AlterPartitionReassignments (key 45): move partitions to other brokers, or stop a move (KIP-455).

Versions:
    1: the asker can demand that the number of replicas stays as it is (KIP-860).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, BrokerId, Message, PartitionId, TopicName, field, i32


class AlterPartitionReassignmentsRequest(Message):
    """The new replicas of partitions."""

    timeout_ms: i32 = 60000
    allow_replication_factor_change: bool = field(since=1, default=True)
    topics: list[ReassignableTopic]


class ReassignableTopic(Message):
    """The partitions of one topic to move."""

    name: TopicName
    partitions: list[ReassignablePartition]


class ReassignablePartition(Message):
    """One partition and its new replicas, the preferred leader first."""

    partition_index: PartitionId
    replicas: list[BrokerId] | None = None  # null: give up the move that is under way


class AlterPartitionReassignmentsResponse(Message):
    """The moves that have begun; ListPartitionReassignments reports their progress."""

    throttle_time_ms: i32 = 0
    allow_replication_factor_change: bool = field(since=1, default=True)
    error_code: ErrorCode
    error_message: str | None = None
    responses: list[ReassignableTopicResponse]


class ReassignableTopicResponse(Message):
    """The results in one topic."""

    name: TopicName
    partitions: list[ReassignablePartitionResponse]


class ReassignablePartitionResponse(Message):
    """Whether one partition's move has begun or ended as asked."""

    partition_index: PartitionId
    error_code: ErrorCode
    error_message: str | None = None


def refuse(
    request: AlterPartitionReassignmentsRequest, code: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    """Give the code to the whole and to every partition."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=code.sentence,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=partition.partition_index,
                        error_code=code,
                        error_message=code.sentence,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def refuse_items(
    request: AlterPartitionReassignmentsRequest, code: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    """Give the code to every partition."""
    return refuse(request, code).replace(error_code=ErrorCode.NONE, error_message=None)


ALTER_PARTITION_REASSIGNMENTS = Api(
    key=45,
    request=AlterPartitionReassignmentsRequest,
    response=AlterPartitionReassignmentsResponse,
    versions=range(2),
    flexible=0,
    refuse=refuse,
    items=(
        Items(
            "topics(name).partitions(partition_index)",
            "responses(name).partitions(partition_index)",
        ),
    ),
    refuse_items=refuse_items,
)
