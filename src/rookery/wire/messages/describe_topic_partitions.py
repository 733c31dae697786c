"""DescribeTopicPartitions (key 75): show topics page by page, with their eligible leaders.

Unlike Metadata it never creates a topic, limits the size of its answer, and reports which replicas
may lead though they are not in sync (KIP-966).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import (
    ZERO_UUID,
    Api,
    BrokerId,
    LeaderEpoch,
    Message,
    PartitionId,
    TopicId,
    TopicName,
    i32,
)


class DescribeTopicPartitionsRequest(Message):
    """The topics to show, and where to continue."""

    topics: list[TopicRequest]  # none: every topic that the caller may see
    response_partition_limit: i32 = 2000
    cursor: Cursor | None = None


class TopicRequest(Message):
    """One topic to show."""

    name: TopicName


class Cursor(Message):
    """The first partition of the next page."""

    topic_name: TopicName
    partition_index: PartitionId


class DescribeTopicPartitionsResponse(Message):
    """One page of topics."""

    throttle_time_ms: i32 = 0
    topics: list[TopicResponse]
    next_cursor: Cursor | None = None  # null: this is the last page


class TopicResponse(Message):
    """One topic, or those of its partitions that fit the page."""

    error_code: ErrorCode
    name: TopicName | None
    topic_id: TopicId
    is_internal: bool = False
    partitions: list[PartitionResponse]
    # A bit for each operation that the caller may do; the default says that none were computed.
    topic_authorized_operations: i32 = -2147483648


class PartitionResponse(Message):
    """One partition: its leader, and the replicas that are eligible."""

    error_code: ErrorCode
    partition_index: PartitionId
    leader_id: BrokerId  # -1: none
    leader_epoch: LeaderEpoch = -1
    replica_nodes: list[BrokerId]
    isr_nodes: list[BrokerId]
    eligible_leader_replicas: list[BrokerId] | None = None
    last_known_elr: list[BrokerId] | None = None
    offline_replicas: list[BrokerId]


def has_valid_cursor(request: DescribeTopicPartitionsRequest) -> bool:
    """Return whether the cursor is of a partition that can exist, of a topic that is asked for."""
    cursor = request.cursor
    if cursor is None:
        return True
    names = {topic.name for topic in request.topics}
    return cursor.partition_index >= 0 and (not names or cursor.topic_name in names)


def refuse(
    request: DescribeTopicPartitionsRequest, code: ErrorCode
) -> DescribeTopicPartitionsResponse:
    """Give every topic named the code; a request for all topics gets an empty page."""
    return DescribeTopicPartitionsResponse(
        topics=[
            TopicResponse(error_code=code, name=topic.name, topic_id=ZERO_UUID, partitions=[])
            for topic in request.topics
        ]
    )


DESCRIBE_TOPIC_PARTITIONS = Api(
    key=75,
    request=DescribeTopicPartitionsRequest,
    response=DescribeTopicPartitionsResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
    items=(Items("topics(name)", "topics(name)", all_if_empty=range(1)),),
)
