"""DeleteGroups (key 42): forget groups that have no members, offsets and all (KIP-229).

Versions:
    1: the broker answers at once and the client does the waiting, when throttled (KIP-219).
    2: flexible.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, GroupId, Message, i32


class DeleteGroupsRequest(Message):
    """The groups to forget; all must have the same coordinator."""

    groups_names: list[GroupId]


class DeleteGroupsResponse(Message):
    """One result for each group."""

    throttle_time_ms: i32 = 0
    results: list[DeletableGroupResult]


class DeletableGroupResult(Message):
    """Whether one group is gone."""

    group_id: GroupId
    error_code: ErrorCode


def refuse(request: DeleteGroupsRequest, code: ErrorCode) -> DeleteGroupsResponse:
    """Give the code to every group."""
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=code)
            for group_id in request.groups_names
        ]
    )


DELETE_GROUPS = Api(
    key=42,
    request=DeleteGroupsRequest,
    response=DeleteGroupsResponse,
    versions=range(3),
    flexible=2,
    refuse=refuse,
    items=(Items("groups_names", "results(group_id)"),),
)
