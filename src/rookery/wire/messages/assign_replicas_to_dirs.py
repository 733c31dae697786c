"""AssignReplicasToDirs (key 73): a broker reports the log directory of each replica.

When a log directory fails, the controller then knows which partitions it took down (KIP-858).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, BrokerId, Message, PartitionId, TopicId, Uuid, i32, i64


class AssignReplicasToDirsRequest(Message):
    """A broker's log directories with what they hold."""

    broker_id: BrokerId
    broker_epoch: i64 = -1
    directories: list[DirectoryData]


class DirectoryData(Message):
    """One log directory."""

    id_: Uuid
    topics: list[TopicData]


class TopicData(Message):
    """Partitions of one topic in a directory."""

    topic_id: TopicId
    partitions: list[PartitionData]


class PartitionData(Message):
    """One partition in a directory."""

    partition_index: PartitionId


class AssignReplicasToDirsResponse(Message):
    """Whether the controller has noted it, down to each partition."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    directories: list[DirectoryResult]


class DirectoryResult(Message):
    """One log directory, answered."""

    id_: Uuid
    topics: list[TopicResult]


class TopicResult(Message):
    """Partitions of one topic, answered."""

    topic_id: TopicId
    partitions: list[PartitionResult]


class PartitionResult(Message):
    """One partition, answered."""

    partition_index: PartitionId
    error_code: ErrorCode


def refuse(request: AssignReplicasToDirsRequest, code: ErrorCode) -> AssignReplicasToDirsResponse:
    """Give the code for the whole request."""
    return AssignReplicasToDirsResponse(error_code=code, directories=[])


ASSIGN_REPLICAS_TO_DIRS = Api(
    key=73,
    request=AssignReplicasToDirsRequest,
    response=AssignReplicasToDirsResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
)
