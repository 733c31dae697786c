"""DescribeQuorum (key 55): the metadata log's leader, voters and their progress (KIP-595).

Versions:
    1: adds when each replica last fetched and last had caught up (KIP-836).
    2: adds log directories, endpoints and error messages (KIP-853).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import (
    ZERO_UUID,
    Api,
    BrokerId,
    Host,
    LeaderEpoch,
    Message,
    Offset,
    PartitionId,
    ShortPort,
    TopicName,
    Uuid,
    field,
    i64,
)


class DescribeQuorumRequest(Message):
    """The logs to look at."""

    topics: list[DescribeQuorumTopic]


class DescribeQuorumTopic(Message):
    """The partitions of one topic; today only `__cluster_metadata` has a quorum."""

    topic_name: TopicName
    partitions: list[DescribeQuorumPartition]


class DescribeQuorumPartition(Message):
    """One partition."""

    partition_index: PartitionId


class DescribeQuorumResponse(Message):
    """The state of the quorum, as its leader sees it."""

    error_code: ErrorCode
    error_message: str | None = field(since=2, default=None)
    topics: list[QuorumTopic]
    nodes: list[Node] = field(since=2, factory=list)


class QuorumTopic(Message):
    """The quorums in one topic."""

    topic_name: TopicName
    partitions: list[QuorumPartition]


class QuorumPartition(Message):
    """One quorum: voters decide what is committed, observers only follow."""

    partition_index: PartitionId
    error_code: ErrorCode
    error_message: str | None = field(since=2, default=None)
    leader_id: BrokerId  # -1: none
    leader_epoch: LeaderEpoch
    high_watermark: Offset
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


class ReplicaState(Message):
    """How far one replica is. Times are milliseconds since 1970, by the leader's clock."""

    replica_id: BrokerId
    replica_directory_id: Uuid = field(since=2, default=ZERO_UUID)
    log_end_offset: Offset  # -1: unknown
    last_fetch_timestamp: i64 = field(since=1, default=-1)
    last_caught_up_timestamp: i64 = field(since=1, default=-1)


class Node(Message):
    """Where a voter can be reached."""

    node_id: BrokerId
    listeners: list[Listener]


class Listener(Message):
    """One listener of a voter."""

    name: str
    host: Host
    port: ShortPort


def refuse(request: DescribeQuorumRequest, code: ErrorCode) -> DescribeQuorumResponse:
    """Answer with the code and no quorums."""
    return DescribeQuorumResponse(error_code=code, error_message=code.sentence, topics=[])


DESCRIBE_QUORUM = Api(
    key=55,
    request=DescribeQuorumRequest,
    response=DescribeQuorumResponse,
    versions=range(3),
    flexible=0,
    refuse=refuse,
)
