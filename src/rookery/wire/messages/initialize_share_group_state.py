"""InitializeShareGroupState (key 83): begin to keep a share group's state for partitions.

The group coordinator sends it to the share coordinator when a group first subscribes to a topic
(KIP-932).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, GroupId, Message, Offset, PartitionId, TopicId, i32


class InitializeShareGroupStateRequest(Message):
    """The partitions that a group begins to read."""

    group_id: GroupId
    topics: list[InitializeStateData]


class InitializeStateData(Message):
    """Partitions of one topic."""

    topic_id: TopicId
    partitions: list[PartitionData]


class PartitionData(Message):
    """One partition and where the group starts in it."""

    partition: PartitionId
    state_epoch: i32
    start_offset: Offset  # -1: the partition's leader decides


class InitializeShareGroupStateResponse(Message):
    """Whether the state was set up."""

    results: list[InitializeStateResult]


class InitializeStateResult(Message):
    """Partitions of one topic, answered."""

    topic_id: TopicId
    partitions: list[PartitionResult]


class PartitionResult(Message):
    """One partition, answered."""

    partition: PartitionId
    error_code: ErrorCode
    error_message: str | None = None


def refuse(
    request: InitializeShareGroupStateRequest, code: ErrorCode
) -> InitializeShareGroupStateResponse:
    """Give every partition the code and its sentence."""
    return InitializeShareGroupStateResponse(
        results=[
            InitializeStateResult(
                topic_id=topic.topic_id,
                partitions=[
                    PartitionResult(
                        partition=partition.partition,
                        error_code=code,
                        error_message=code.sentence,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


INITIALIZE_SHARE_GROUP_STATE = Api(
    key=83,
    request=InitializeShareGroupStateRequest,
    response=InitializeShareGroupStateResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
    items=(
        Items("topics(topic_id).partitions(partition)", "results(topic_id).partitions(partition)"),
    ),
)
