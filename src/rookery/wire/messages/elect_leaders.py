"""ElectLeaders (key 43): make partitions choose new leaders.

The usual election brings back the preferred leader, the first in the list of replicas. An unclean
one makes any live replica the leader; the records that it has missed are lost.

Versions:
    0: preferred leaders only (KIP-183).
    1: adds unclean elections, and an error for the whole answer (KIP-460).
    2: flexible.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, Message, PartitionId, TopicName, field, i8, i32


class ElectLeadersRequest(Message):
    """Which partitions, and what sort of election."""

    election_type: i8 = field(since=1, default=0)  # 0 preferred, 1 unclean
    topic_partitions: list[TopicPartitions] | None = None  # null: all partitions
    timeout_ms: i32 = 60000


class TopicPartitions(Message):
    """The partitions of one topic."""

    topic: TopicName
    partitions: list[PartitionId]


class ElectLeadersResponse(Message):
    """How the elections went."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode = field(since=1, default=ErrorCode.NONE)
    replica_election_results: list[ReplicaElectionResult]


class ReplicaElectionResult(Message):
    """The elections in one topic."""

    topic: TopicName
    partition_result: list[PartitionResult]


class PartitionResult(Message):
    """The election in one partition; ELECTION_NOT_NEEDED if nothing had to change."""

    partition_id: PartitionId
    error_code: ErrorCode
    error_message: str | None = None


def refuse(request: ElectLeadersRequest, code: ErrorCode) -> ElectLeadersResponse:
    """Give the code to the whole and to every partition that was named.

    Version 0 asking for all partitions gets an empty answer: it has no place for a code.
    """
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            _refuse_topic(topic, code) for topic in request.topic_partitions or []
        ],
    )


def refuse_items(request: ElectLeadersRequest, code: ErrorCode) -> ElectLeadersResponse:
    """Give the code to every partition that was named."""
    return ElectLeadersResponse(
        replica_election_results=[
            _refuse_topic(topic, code) for topic in request.topic_partitions or []
        ]
    )


def _refuse_topic(topic: TopicPartitions, code: ErrorCode) -> ReplicaElectionResult:
    return ReplicaElectionResult(
        topic=topic.topic,
        partition_result=[
            PartitionResult(partition_id=partition, error_code=code, error_message=code.sentence)
            for partition in topic.partitions
        ],
    )


ELECT_LEADERS = Api(
    key=43,
    request=ElectLeadersRequest,
    response=ElectLeadersResponse,
    versions=range(3),
    flexible=2,
    refuse=refuse,
    items=(
        Items(
            "topic_partitions(topic).partitions",
            "replica_election_results(topic).partition_result(partition_id)",
        ),
    ),
    refuse_items=refuse_items,
)
