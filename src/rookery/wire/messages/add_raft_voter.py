"""AddRaftVoter (key 80): let a controller vote in the metadata quorum (KIP-853).

Versions:
    1 can be answered before the change is committed (KIP-1186).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import (
    Api,
    BrokerId,
    ClusterId,
    Host,
    Message,
    ShortPort,
    Uuid,
    field,
    i32,
)


class AddRaftVoterRequest(Message):
    """The new voter and its addresses."""

    cluster_id: ClusterId | None
    timeout_ms: i32
    voter_id: BrokerId  # controllers and brokers share one space of node ids
    voter_directory_id: Uuid  # differs for a controller with a new disk
    listeners: list[Listener]
    ack_when_committed: bool = field(since=1, default=True)


class Listener(Message):
    """An address that the voter listens on."""

    name: str
    host: Host
    port: ShortPort


class AddRaftVoterResponse(Message):
    """Whether the voter was added."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    error_message: str | None = None


def refuse(request: AddRaftVoterRequest, code: ErrorCode) -> AddRaftVoterResponse:
    """Give the code and its sentence."""
    return AddRaftVoterResponse(error_code=code, error_message=code.sentence)


ADD_RAFT_VOTER = Api(
    key=80,
    request=AddRaftVoterRequest,
    response=AddRaftVoterResponse,
    versions=range(2),
    flexible=0,
    refuse=refuse,
)
