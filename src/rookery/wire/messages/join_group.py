"""JoinGroup (key 11): a consumer enters a group, or stays in it while the group is rebalanced.

The coordinator holds all answers back until every member has joined or run out of time, then
answers with a new generation. One member is made leader: it alone learns of the others, decides
the assignment, and sends it with SyncGroup.

Versions:
    1 the time to rejoin in is named apart from the session timeout (KIP-62).
    2 the response has the throttle time.
    3 a throttled client is answered at once and waits by itself (KIP-219).
    4 a newcomer gets MEMBER_ID_REQUIRED with its id first, and joins again with that (KIP-394).
    5 static members (KIP-345).
    6 flexible.
    7 the answer repeats the protocol type (KIP-559).
    8 why the member joins, for the log (KIP-800).
    9 the broker may ask a returning leader to keep the assignment (KIP-814).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, GroupId, InstanceId, MemberId, Message, field, i32


class JoinGroupRequest(Message):
    """The member that joins, and the assignors that it supports."""

    group_id: GroupId
    session_timeout_ms: i32
    rebalance_timeout_ms: i32 = field(since=1, default=-1)  # -1: as long as the session's
    member_id: MemberId  # empty for a newcomer
    group_instance_id: InstanceId | None = field(since=5, default=None)
    protocol_type: str  # "consumer", "connect" or what else the members agree on
    protocols: list[JoinGroupRequestProtocol]  # the favourite first
    reason: str | None = field(since=8, default=None)


class JoinGroupRequestProtocol(Message):
    """An assignor's name, and what it must know of the member."""

    name: str
    # The coordinator does not look inside; consumers put their subscription there.
    metadata: bytes


class JoinGroupResponse(Message):
    """The new generation, as one member sees it."""

    throttle_time_ms: i32 = field(since=2, default=0)
    error_code: ErrorCode
    generation_id: i32 = -1
    protocol_type: str | None = field(since=7, default=None)
    protocol_name: str | None = field(nullable=7)  # the assignor that every member understands
    leader: MemberId
    skip_assignment: bool = field(since=9, default=False)
    member_id: MemberId  # the receiver's own
    members: list[JoinGroupResponseMember]  # empty for all but the leader


class JoinGroupResponseMember(Message):
    """A member, as the leader must know it."""

    member_id: MemberId
    group_instance_id: InstanceId | None = field(since=5, default=None)
    metadata: bytes


def refuse(request: JoinGroupRequest, code: ErrorCode) -> JoinGroupResponse:
    """Answer with the code, no generation and no members."""
    return JoinGroupResponse(
        error_code=code,
        protocol_name="",  # null would do from version 7 only
        leader="",
        member_id="",
        members=[],
    )


JOIN_GROUP = Api(
    key=11,
    request=JoinGroupRequest,
    response=JoinGroupResponse,
    versions=range(10),
    flexible=6,
    refuse=refuse,
)
