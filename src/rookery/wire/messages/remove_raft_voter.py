"""RemoveRaftVoter (key 81): take a controller's vote in the metadata quorum away (KIP-853)."""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, BrokerId, ClusterId, Message, Uuid, i32


class RemoveRaftVoterRequest(Message):
    """The voter to remove."""

    cluster_id: ClusterId | None
    voter_id: BrokerId  # controllers and brokers share one space of node ids
    voter_directory_id: Uuid


class RemoveRaftVoterResponse(Message):
    """Whether the voter was removed."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    error_message: str | None = None


def refuse(request: RemoveRaftVoterRequest, code: ErrorCode) -> RemoveRaftVoterResponse:
    """Give the code and its sentence."""
    return RemoveRaftVoterResponse(error_code=code, error_message=code.sentence)


REMOVE_RAFT_VOTER = Api(
    key=81,
    request=RemoveRaftVoterRequest,
    response=RemoveRaftVoterResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
)
