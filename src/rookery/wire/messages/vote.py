"""Vote (key 52): a controller asks the others to make it leader of the metadata log (KIP-595).

Versions:
    1: names log directories and endpoints, as voters may come and go (KIP-853).
    2: adds the pre-vote: a question whether an election could be won at all (KIP-996).
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
    Offset,
    PartitionId,
    ShortPort,
    TopicName,
    Uuid,
    field,
)


class VoteRequest(Message):
    """A candidate stands for election."""

    cluster_id: ClusterId | None = None
    voter_id: BrokerId = field(since=1, default=-1)  # the receiver; -1: unknown
    topics: list[VoteTopic]


class VoteTopic(Message):
    """The elections in one topic; today only `__cluster_metadata` has any."""

    topic_name: TopicName
    partitions: list[VotePartition]


class VotePartition(Message):
    """The candidate, the epoch it would lead, and how far its log goes."""

    partition_index: PartitionId
    replica_epoch: LeaderEpoch
    replica_id: BrokerId
    replica_directory_id: Uuid = field(since=1, default=ZERO_UUID)
    voter_directory_id: Uuid = field(since=1, default=ZERO_UUID)
    last_offset_epoch: LeaderEpoch  # of the last record
    last_offset: Offset
    pre_vote: bool = field(since=2, default=False)


class VoteResponse(Message):
    """The voter's answer."""

    error_code: ErrorCode
    topics: list[VoteTopicResult]
    node_endpoints: list[NodeEndpoint] = field(since=1, tag=0, factory=list)


class VoteTopicResult(Message):
    """The votes in one topic."""

    topic_name: TopicName
    partitions: list[VotePartitionResult]


class VotePartitionResult(Message):
    """The vote, and the leader that the voter knows of."""

    partition_index: PartitionId
    error_code: ErrorCode
    leader_id: BrokerId  # -1: none
    leader_epoch: LeaderEpoch
    vote_granted: bool


class NodeEndpoint(Message):
    """Where a leader named above can be reached."""

    node_id: BrokerId
    host: Host
    port: ShortPort


def refuse(request: VoteRequest, code: ErrorCode) -> VoteResponse:
    """Answer with the code and no votes."""
    return VoteResponse(error_code=code, topics=[])


VOTE = Api(
    key=52,
    request=VoteRequest,
    response=VoteResponse,
    versions=range(3),
    flexible=0,
    refuse=refuse,
)
