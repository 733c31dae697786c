"""ListGroups (key 16): the groups that one broker coordinates; a tool must ask every broker.

Versions:
    1 the response has the throttle time.
    2 a throttled client is answered at once and waits by itself (KIP-219).
    3 flexible.
    4 only groups in certain states (KIP-518).
    5 only groups of certain types (KIP-848).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, GroupId, Message, field, i32


class ListGroupsRequest(Message):
    """Which groups to list; an empty filter lets all pass."""

    states_filter: list[str] = field(since=4, factory=list)
    types_filter: list[str] = field(since=5, factory=list)


class ListGroupsResponse(Message):
    """The groups found."""

    throttle_time_ms: i32 = field(since=1, default=0)
    error_code: ErrorCode
    groups: list[ListedGroup]


class ListedGroup(Message):
    """One group, in brief."""

    group_id: GroupId
    protocol_type: str
    group_state: str = field(since=4, default="")
    group_type: str = field(since=5, default="")  # classic, consumer, share or streams


def refuse(request: ListGroupsRequest, code: ErrorCode) -> ListGroupsResponse:
    """Answer with the code and no groups."""
    return ListGroupsResponse(error_code=code, groups=[])


LIST_GROUPS = Api(
    key=16,
    request=ListGroupsRequest,
    response=ListGroupsResponse,
    versions=range(6),
    flexible=3,
    refuse=refuse,
)
