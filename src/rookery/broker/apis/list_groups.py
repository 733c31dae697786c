"""ListGroups: the groups that this broker coordinates."""

from __future__ import annotations

from rookery.broker.call import Call
from rookery.broker.groups.kinds import kind_of, protocol_type_of
from rookery.broker.groups.requests import reach_head
from rookery.broker.registry import handles
from rookery.cluster.state.groups import Group
from rookery.errors import ErrorCode
from rookery.wire.messages.list_groups import (
    LIST_GROUPS,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)


@handles(LIST_GROUPS, versions=range(6))
async def list_groups(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    """List what passes both filters; an empty one lets all pass."""
    await reach_head(call)
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    ours = [group for group in call.state.groups if call.services.groups.is_ours(group.id)]
    groups = [
        listed
        for listed in (_listed(call, group) for group in ours)
        if (not states or listed.group_state.lower() in states)
        and (not types or listed.group_type.lower() in types)
    ]
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups)


def _listed(call: Call, group: Group) -> ListedGroup:
    machine = call.services.groups.machine(group)
    return ListedGroup(
        group_id=group.id,
        protocol_type=protocol_type_of(machine),
        group_state=machine.state_name,
        group_type=kind_of(machine),
    )
