"""CreatePartitions (key 37): give topics more partitions; there is no way back (KIP-195).

Versions:
    1: the broker answers at once and the client does the waiting, when throttled (KIP-219).
    2: flexible.
    3: the answer may be THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, BrokerId, Message, PartitionCount, TopicName, i32


class CreatePartitionsRequest(Message):
    """The topics to extend."""

    topics: list[CreatePartitionsTopic]
    timeout_ms: i32
    validate_only: bool = False  # check, but change nothing


class CreatePartitionsTopic(Message):
    """One topic and its new number of partitions."""

    name: TopicName
    count: PartitionCount  # in all, not in addition
    assignments: list[CreatePartitionsAssignment] | None = None  # null: the cluster chooses


class CreatePartitionsAssignment(Message):
    """The replicas of one new partition; its preferred leader comes first."""

    broker_ids: list[BrokerId]


class CreatePartitionsResponse(Message):
    """One result for each topic."""

    throttle_time_ms: i32 = 0
    results: list[CreatePartitionsTopicResult]


class CreatePartitionsTopicResult(Message):
    """Whether one topic has grown."""

    name: TopicName
    error_code: ErrorCode
    error_message: str | None = None


def refuse(request: CreatePartitionsRequest, code: ErrorCode) -> CreatePartitionsResponse:
    """Give the code to every topic."""
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=topic.name, error_code=code, error_message=code.sentence
            )
            for topic in request.topics
        ]
    )


CREATE_PARTITIONS = Api(
    key=37,
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
    versions=range(4),
    flexible=2,
    refuse=refuse,
    items=(Items("topics(name)", "results(name)"),),
)
