"""CreateTopics (key 19): an administrator creates topics (KIP-4).

Versions:
    1 a dry run; a failure comes with a message.
    2 the response has the throttle time; Kafka 4's oldest.
    3 a throttled client is answered at once and waits by itself (KIP-219).
    4 partitions and replication factor may be left to the broker (KIP-464).
    5 flexible; the answer shows the new topic's settings (KIP-525).
    6 the client knows THROTTLING_QUOTA_EXCEEDED (KIP-599).
    7 the answer has the new topic's id (KIP-516).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import (
    ZERO_UUID,
    Api,
    BrokerId,
    Message,
    PartitionCount,
    PartitionId,
    TopicId,
    TopicName,
    field,
    i8,
    i16,
    i32,
)


class CreateTopicsRequest(Message):
    """The topics to create."""

    topics: list[CreatableTopic]
    timeout_ms: i32 = 60000
    validate_only: bool = field(since=1, default=False)


class CreatableTopic(Message):
    """One topic's partitions, replicas and settings."""

    name: TopicName
    # Both -1: the broker's defaults (from version 4), or as the assignments below say.
    num_partitions: PartitionCount
    replication_factor: i16
    assignments: list[CreatableReplicaAssignment]  # empty: the broker places the replicas
    configs: list[CreatableTopicConfig]


class CreatableReplicaAssignment(Message):
    """The replicas of one partition, the preferred leader first."""

    partition_index: PartitionId
    broker_ids: list[BrokerId]


class CreatableTopicConfig(Message):
    """A setting of the new topic."""

    name: str
    value: str | None


class CreateTopicsResponse(Message):
    """Which topics were created."""

    throttle_time_ms: i32 = field(since=2, default=0)
    topics: list[CreatableTopicResult]


class CreatableTopicResult(Message):
    """One created topic, or the reason why it was not created."""

    name: TopicName
    topic_id: TopicId = field(since=7, default=ZERO_UUID)
    error_code: ErrorCode
    error_message: str | None = field(since=1, default=None)
    # Why the client may not see the three fields below, although the topic was created.
    topic_config_error_code: ErrorCode = field(since=5, tag=0, default=ErrorCode.NONE)
    num_partitions: PartitionCount = field(since=5, default=-1)
    replication_factor: i16 = field(since=5, default=-1)
    configs: list[CreatableTopicConfigs] | None = field(since=5, default=None)


class CreatableTopicConfigs(Message):
    """A setting that the new topic has, its own or inherited."""

    name: str
    value: str | None  # null if it is secret
    read_only: bool
    # 1 the topic's own; 2 set at run time for a broker, 3 for all; 4 a broker's file; 5 default.
    config_source: i8 = -1
    is_sensitive: bool


def refuse(request: CreateTopicsRequest, code: ErrorCode) -> CreateTopicsResponse:
    """Give the code to every topic."""
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name=topic.name, error_code=code, error_message=code.sentence, configs=[]
            )
            for topic in request.topics
        ]
    )


CREATE_TOPICS = Api(
    key=19,
    request=CreateTopicsRequest,
    response=CreateTopicsResponse,
    versions=range(8),
    flexible=5,
    refuse=refuse,
    items=(Items("topics(name)", "topics(name)"),),
)
