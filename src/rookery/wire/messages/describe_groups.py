"""DescribeGroups (key 15): the state and the members of classic groups, for tools.

Versions:
    1 the response has the throttle time.
    2 a throttled client is answered at once and waits by itself (KIP-219).
    3 what the client may do with each group (KIP-430).
    4 static members (KIP-345).
    5 flexible.
    6 an unknown group is an error, with a message, no longer a "Dead" group (KIP-1043).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import (
    Api,
    ClientHost,
    ClientId,
    GroupId,
    InstanceId,
    MemberId,
    Message,
    field,
    i32,
)


class DescribeGroupsRequest(Message):
    """The groups to describe; the receiver must be their coordinator."""

    groups: list[GroupId]
    include_authorized_operations: bool = field(since=3, default=False)


class DescribeGroupsResponse(Message):
    """The described groups, each with its own error."""

    throttle_time_ms: i32 = field(since=1, default=0)
    groups: list[DescribedGroup]


class DescribedGroup(Message):
    """One group."""

    error_code: ErrorCode
    error_message: str | None = field(since=6, default=None)
    group_id: GroupId
    # Empty, PreparingRebalance, CompletingRebalance, Stable or Dead.
    group_state: str
    protocol_type: str
    protocol_data: str  # the assignor in use; empty while there is none
    members: list[DescribedGroupMember]
    # A bit for each permitted operation; the lowest number of all: not requested.
    authorized_operations: i32 = field(since=3, default=-2147483648)


class DescribedGroupMember(Message):
    """One member: its own words, and the part it was given."""

    member_id: MemberId
    group_instance_id: InstanceId | None = field(since=4, default=None)
    client_id: ClientId
    client_host: ClientHost  # where the member connects from, not a broker's address
    member_metadata: bytes  # as in JoinGroup
    member_assignment: bytes  # as in SyncGroup


def refuse(request: DescribeGroupsRequest, code: ErrorCode) -> DescribeGroupsResponse:
    """Give the code to every group."""
    return DescribeGroupsResponse(
        groups=[
            DescribedGroup(
                error_code=code,
                error_message=code.sentence,
                group_id=group_id,
                group_state="",
                protocol_type="",
                protocol_data="",
                members=[],
            )
            for group_id in request.groups
        ]
    )


DESCRIBE_GROUPS = Api(
    key=15,
    request=DescribeGroupsRequest,
    response=DescribeGroupsResponse,
    versions=range(7),
    flexible=5,
    refuse=refuse,
    items=(Items("groups", "groups(group_id)"),),
)
