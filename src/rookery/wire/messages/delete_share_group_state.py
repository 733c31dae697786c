"""DeleteShareGroupState (key 86): forget what a share group has done with partitions (KIP-932)."""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, GroupId, Message, PartitionId, TopicId


class DeleteShareGroupStateRequest(Message):
    """The partitions to forget."""

    group_id: GroupId
    topics: list[DeleteStateData]


class DeleteStateData(Message):
    """Partitions of one topic."""

    topic_id: TopicId
    partitions: list[PartitionData]


class PartitionData(Message):
    """One partition to forget."""

    partition: PartitionId


class DeleteShareGroupStateResponse(Message):
    """Whether the state is gone."""

    results: list[DeleteStateResult]


class DeleteStateResult(Message):
    """Partitions of one topic, answered."""

    topic_id: TopicId
    partitions: list[PartitionResult]


class PartitionResult(Message):
    """One partition, answered."""

    partition: PartitionId
    error_code: ErrorCode
    error_message: str | None = None


def refuse(request: DeleteShareGroupStateRequest, code: ErrorCode) -> DeleteShareGroupStateResponse:
    """Give every partition the code and its sentence."""
    return DeleteShareGroupStateResponse(
        results=[
            DeleteStateResult(
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


DELETE_SHARE_GROUP_STATE = Api(
    key=86,
    request=DeleteShareGroupStateRequest,
    response=DeleteShareGroupStateResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
    items=(
        Items("topics(topic_id).partitions(partition)", "results(topic_id).partitions(partition)"),
    ),
)
