"""EndQuorumEpoch (key 54): the leader of the metadata log steps down and names heirs (KIP-595).

Versions:
    1: flexible; names log directories and endpoints, as voters may come and go (KIP-853).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import (
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


class EndQuorumEpochRequest(Message):
    """The leader says goodbye."""

    cluster_id: ClusterId | None = None
    topics: list[EndQuorumEpochTopic]
    leader_endpoints: list[LeaderEndpoint] = field(since=1, factory=list)


class EndQuorumEpochTopic(Message):
    """The leaders that go in one topic; today only `__cluster_metadata` has any."""

    topic_name: TopicName
    partitions: list[EndQuorumEpochPartition]


class EndQuorumEpochPartition(Message):
    """The resigning leader, its epoch, and the preferred candidates, the best first."""

    partition_index: PartitionId
    leader_id: BrokerId
    leader_epoch: LeaderEpoch
    preferred_successors: list[BrokerId] = field(until=0, factory=list)
    preferred_candidates: list[ReplicaInfo] = field(since=1, factory=list)


class ReplicaInfo(Message):
    """A voter, identified by its id and its log directory."""

    candidate_id: BrokerId
    candidate_directory_id: Uuid


class LeaderEndpoint(Message):
    """One listener where the leader can be reached."""

    name: str
    host: Host
    port: ShortPort


class EndQuorumEpochResponse(Message):
    """The voter's answer."""

    error_code: ErrorCode
    topics: list[EndQuorumEpochTopicResult]
    node_endpoints: list[NodeEndpoint] = field(since=1, tag=0, factory=list)


class EndQuorumEpochTopicResult(Message):
    """The voter's view of one topic."""

    topic_name: TopicName
    partitions: list[EndQuorumEpochPartitionResult]


class EndQuorumEpochPartitionResult(Message):
    """Whether the voter has taken note, and the leader that it knows of."""

    partition_index: PartitionId
    error_code: ErrorCode
    leader_id: BrokerId  # -1: none
    leader_epoch: LeaderEpoch


class NodeEndpoint(Message):
    """Where a leader named above can be reached."""

    node_id: BrokerId
    host: Host
    port: ShortPort


def refuse(request: EndQuorumEpochRequest, code: ErrorCode) -> EndQuorumEpochResponse:
    """Answer with the code and no topics."""
    return EndQuorumEpochResponse(error_code=code, topics=[])


END_QUORUM_EPOCH = Api(
    key=54,
    request=EndQuorumEpochRequest,
    response=EndQuorumEpochResponse,
    versions=range(2),
    flexible=1,
    refuse=refuse,
)
