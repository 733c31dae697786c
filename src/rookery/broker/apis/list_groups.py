"""ListGroups: the groups that this broker coordinates."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.groups.requests import reach_head
from rookery.broker.groups.summary import GroupSummary
from rookery.cluster.state.groups import Group
from rookery.errors import ErrorCode
from rookery.service.looppace import LoopPace
from rookery.wire.messages.list_groups import (
    LIST_GROUPS,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)


@handles(
    LIST_GROUPS,
    versions=range(6),
    mutates=False,
)
async def list_groups(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    """List the groups of this broker that match both filters; an empty filter matches all."""
    await reach_head(call)
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    pace, coordinator = LoopPace(call.services.clock), call.services.groups
    groups: list[ListedGroup] = []
    for group in list(call.state.groups):
        await pace.step()
        if not coordinator.is_ours(group.id):
            continue
        listed = _describe(group, coordinator.summary(group))
        if (not states or listed.group_state.lower() in states) and (
            not types or listed.group_type.lower() in types
        ):
            groups.append(listed)
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups)


def _describe(group: Group, summary: GroupSummary | None) -> ListedGroup:
    if summary is None:  # it exists but cannot be decoded
        summary = GroupSummary(group.kind, "Unknown", "", is_empty=False)
    return ListedGroup(
        group_id=group.id,
        protocol_type=summary.protocol_type,
        group_state=summary.state,
        group_type=summary.kind,
    )
