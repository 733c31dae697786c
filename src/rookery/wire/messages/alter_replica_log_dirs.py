"""AlterReplicaLogDirs (key 34): move a broker's replicas from one of its disks to another.

A replica that the broker does not have yet will be made in the directory named here (KIP-113).

Versions:
    1: the broker answers at once and the client does the waiting, when throttled (KIP-219).
    2: flexible.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, Message, PartitionId, TopicName, i32


class AlterReplicaLogDirsRequest(Message):
    """The directories of one broker, and the replicas to move into them."""

    dirs: list[AlterReplicaLogDir]


class AlterReplicaLogDir(Message):
    """A directory, by its absolute path, and the replicas to move into it."""

    path: str
    topics: list[AlterReplicaLogDirTopic]


class AlterReplicaLogDirTopic(Message):
    """The partitions of one topic to move."""

    name: TopicName
    partitions: list[PartitionId]


class AlterReplicaLogDirsResponse(Message):
    """Which moves have begun; they end in the background."""

    throttle_time_ms: i32 = 0
    results: list[AlterReplicaLogDirTopicResult]


class AlterReplicaLogDirTopicResult(Message):
    """The results in one topic."""

    topic_name: TopicName
    partitions: list[AlterReplicaLogDirPartitionResult]


class AlterReplicaLogDirPartitionResult(Message):
    """Whether one partition's move has begun."""

    partition_index: PartitionId
    error_code: ErrorCode


def refuse(request: AlterReplicaLogDirsRequest, code: ErrorCode) -> AlterReplicaLogDirsResponse:
    """Give the code to every partition that was asked for."""
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


ALTER_REPLICA_LOG_DIRS = Api(
    key=34,
    request=AlterReplicaLogDirsRequest,
    response=AlterReplicaLogDirsResponse,
    versions=range(3),
    flexible=2,
    refuse=refuse,
    items=(
        Items(
            "dirs(path).topics(name).partitions", "results(topic_name).partitions(partition_index)"
        ),
    ),
)
