"""DescribeTopicPartitions: topics ordered by name, page by page (KIP-966)."""

from __future__ import annotations

from typing import Final

from rookery.broker.call import Call, handles
from rookery.broker.operations import ON_TOPIC
from rookery.broker.topicdescription import replicas_by_leader
from rookery.broker.topics import check_name
from rookery.cluster.state.topics import Topic
from rookery.errors import ApiError, ErrorCode
from rookery.model.topicname import INTERNAL_TOPICS
from rookery.wire.message import ZERO_UUID
from rookery.wire.messages.describe_topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    PartitionResponse,
    TopicResponse,
    has_valid_cursor,
)

_LIMIT: Final = 2000
"""Upper limit of partitions per response (Kafka's max.request.partition.size.limit)."""


@handles(
    DESCRIBE_TOPIC_PARTITIONS,
    versions=range(1),
    mutates=False,
)
async def describe_topic_partitions(
    call: Call, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Return one page of topics, starting at the cursor, with the cursor of the next page."""
    await call.services.replica.barrier()
    cursor = request.cursor
    if not has_valid_cursor(request):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the cursor is of no topic asked for: {cursor}")
    names = {topic.name for topic in request.topics} or set(call.state.topics.by_name)
    left = min(max(request.response_partition_limit, 1), _LIMIT)
    page: list[TopicResponse] = []
    for name in sorted(names):
        if cursor is not None and name < cursor.topic_name:
            continue
        if left == 0:
            return DescribeTopicPartitionsResponse(
                topics=page, next_cursor=Cursor(topic_name=name, partition_index=0)
            )
        topic = call.state.topics.by_name.get(name)
        if topic is None:
            # Without names in the request, a topic may be deleted between two pages.
            if request.topics:
                page.append(_unknown(name))
            continue
        first = cursor.partition_index if cursor and cursor.topic_name == name else 0
        answer = _describe(call, topic, first, left)
        page.append(answer)
        left -= len(answer.partitions)
        after = first + len(answer.partitions)
        if after < len(topic.partitions):
            return DescribeTopicPartitionsResponse(
                topics=page, next_cursor=Cursor(topic_name=name, partition_index=after)
            )
    return DescribeTopicPartitionsResponse(topics=page)


def _unknown(name: str) -> TopicResponse:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
    except ApiError as refusal:
        error = refusal.code
    return TopicResponse(
        error_code=error,
        name=name,
        topic_id=ZERO_UUID,
        partitions=[],
        topic_authorized_operations=ON_TOPIC,
    )


def _describe(call: Call, topic: Topic, first: int, count: int) -> TopicResponse:
    replicas = replicas_by_leader(topic, call.state.brokers.nodes)
    return TopicResponse(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            PartitionResponse(
                error_code=(
                    ErrorCode.NONE if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
                ),
                partition_index=partition.index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=replicas[partition.leader],
                isr_nodes=replicas[partition.leader],
                # Every live broker is in sync, so no other replica needs to be eligible.
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=[],
            )
            for partition in topic.partitions[first : first + count]
        ],
        topic_authorized_operations=ON_TOPIC,
    )
