"""UpdateRaftVoter (key 82): a voter sends the quorum's leader its new addresses or features.

A controller sends it for itself, after a restart with another configuration (KIP-853).
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
    Port,
    ShortPort,
    Uuid,
    field,
    i16,
    i32,
)


class UpdateRaftVoterRequest(Message):
    """The voter as it is now."""

    cluster_id: ClusterId | None
    current_leader_epoch: LeaderEpoch
    voter_id: BrokerId  # controllers and brokers share one space of node ids
    voter_directory_id: Uuid
    listeners: list[Listener]
    k_raft_version_feature: KRaftVersionFeature


class Listener(Message):
    """An address that the voter listens on."""

    name: str
    host: Host
    port: ShortPort


class KRaftVersionFeature(Message):
    """The levels of kraft.version that the voter supports."""

    min_supported_version: i16
    max_supported_version: i16


class UpdateRaftVoterResponse(Message):
    """Whether the voter was updated, or else the current leader."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    current_leader: CurrentLeader | None = field(tag=0, default=None)


class CurrentLeader(Message):
    """The quorum's leader and its address."""

    leader_id: BrokerId = -1
    leader_epoch: LeaderEpoch = -1
    host: Host
    port: Port


def refuse(request: UpdateRaftVoterRequest, code: ErrorCode) -> UpdateRaftVoterResponse:
    """Give the code and name no leader."""
    return UpdateRaftVoterResponse(error_code=code)


UPDATE_RAFT_VOTER = Api(
    key=82,
    request=UpdateRaftVoterRequest,
    response=UpdateRaftVoterResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
)
