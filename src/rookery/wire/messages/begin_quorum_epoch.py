"""BeginQuorumEpoch (key 53): a new leader of the metadata log notifies the voters (KIP-595).

Versions:
    1: flexible; names log directories and endpoints, as voters may come and go (KIP-853).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import (
    ZERO_UUID,
    Api,
    BrokerId,
    ClusterId,
    Host,
    LeaderEpoch,
    Message,
    PartitionId,
    ShortPort,
    TopicName,
    Uuid,
    field,
)


class BeginQuorumEpochRequest(Message):
    """The leader introduces itself."""

    cluster_id: ClusterId | None = None
    voter_id: BrokerId = field(since=1, default=-1)  # the receiver; -1: unknown
    topics: list[BeginQuorumEpochTopic]
    leader_endpoints: list[LeaderEndpoint] = field(since=1, factory=list)


class BeginQuorumEpochTopic(Message):
    """The new leaders in one topic; today only `__cluster_metadata` has any."""

    topic_name: TopicName
    partitions: list[BeginQuorumEpochPartition]


class BeginQuorumEpochPartition(Message):
    """The leader and the epoch that it leads."""

    partition_index: PartitionId
    voter_directory_id: Uuid = field(since=1, default=ZERO_UUID)
    leader_id: BrokerId
    leader_epoch: LeaderEpoch


class LeaderEndpoint(Message):
    """One listener where the leader can be reached."""

    name: str
    host: Host
    port: ShortPort


class BeginQuorumEpochResponse(Message):
    """The voter's answer."""

    error_code: ErrorCode
    topics: list[BeginQuorumEpochTopicResult]
    node_endpoints: list[NodeEndpoint] = field(since=1, tag=0, factory=list)


class BeginQuorumEpochTopicResult(Message):
    """The voter's view of one topic."""

    topic_name: TopicName
    partitions: list[BeginQuorumEpochPartitionResult]


class BeginQuorumEpochPartitionResult(Message):
    """Whether the voter follows, and the leader that it knows of."""

    partition_index: PartitionId
    error_code: ErrorCode
    leader_id: BrokerId  # -1: none
    leader_epoch: LeaderEpoch


class NodeEndpoint(Message):
    """Where a leader named above can be reached."""

    node_id: BrokerId
    host: Host
    port: ShortPort


def refuse(request: BeginQuorumEpochRequest, code: ErrorCode) -> BeginQuorumEpochResponse:
    """Answer with the code and no topics."""
    return BeginQuorumEpochResponse(error_code=code, topics=[])


BEGIN_QUORUM_EPOCH = Api(
    key=53,
    request=BeginQuorumEpochRequest,
    response=BeginQuorumEpochResponse,
    versions=range(2),
    flexible=1,
    refuse=refuse,
)
