"""ListPartitionReassignments (key 46): which partitions are moving between brokers (KIP-455)."""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, BrokerId, Message, PartitionId, TopicName, i32


class ListPartitionReassignmentsRequest(Message):
    """The partitions to look at."""

    timeout_ms: i32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None  # null: all topics


class ListPartitionReassignmentsTopics(Message):
    """The partitions of one topic to look at."""

    name: TopicName
    partition_indexes: list[PartitionId]


class ListPartitionReassignmentsResponse(Message):
    """The moves under way; a partition at rest is left out."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    error_message: str | None = None
    topics: list[OngoingTopicReassignment]


class OngoingTopicReassignment(Message):
    """The moves in one topic."""

    name: TopicName
    partitions: list[OngoingPartitionReassignment]


class OngoingPartitionReassignment(Message):
    """One partition: its replicas, those being added, and those to be removed at the end."""

    partition_index: PartitionId
    replicas: list[BrokerId]
    adding_replicas: list[BrokerId]
    removing_replicas: list[BrokerId]


def refuse(
    request: ListPartitionReassignmentsRequest, code: ErrorCode
) -> ListPartitionReassignmentsResponse:
    """Answer with the code; as in Kafka, partitions that were named are there without moves."""
    return ListPartitionReassignmentsResponse(
        error_code=code,
        error_message=code.sentence,
        topics=[
            OngoingTopicReassignment(
                name=topic.name,
                partitions=[
                    OngoingPartitionReassignment(
                        partition_index=index, replicas=[], adding_replicas=[], removing_replicas=[]
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or []
        ],
    )


def refuse_items(
    request: ListPartitionReassignmentsRequest, code: ErrorCode
) -> ListPartitionReassignmentsResponse:
    """Answer with no moves: only the whole response has an error code."""
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, topics=[])


LIST_PARTITION_REASSIGNMENTS = Api(
    key=46,
    request=ListPartitionReassignmentsRequest,
    response=ListPartitionReassignmentsResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
    items=(
        Items(
            "topics(name).partition_indexes",
            "topics(name).partitions(partition_index)",
            has_codes=False,
        ),
    ),
    refuse_items=refuse_items,
)
