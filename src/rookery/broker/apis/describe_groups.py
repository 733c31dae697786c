"""DescribeGroups: the state and members of classic groups."""

from __future__ import annotations

from typing import Final

from rookery.broker.call import Call, handles
from rookery.broker.groups.classic.machine import ClassicGroupMachine, ClassicMemberDescription
from rookery.broker.groups.requests import find_machine, reach_head
from rookery.broker.operations import NOT_ASKED
from rookery.errors import ApiError, ErrorCode
from rookery.security.access import Operation
from rookery.wire.messages.describe_groups import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_UNKNOWN_IS_AN_ERROR: Final = 6
_OPERATIONS: Final = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
_ON_GROUP: Final = sum(1 << operation for operation in _OPERATIONS)


@handles(
    DESCRIBE_GROUPS,
    versions=range(7),
    mutates=False,
)
async def describe_groups(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe classic groups with their members, as of the log's head."""
    await reach_head(call)
    groups = [_describe(call, group_id) for group_id in request.groups]
    for group in groups:
        is_fine = group.error_code is ErrorCode.NONE
        asked = request.include_authorized_operations and is_fine
        group.authorized_operations = _ON_GROUP if asked else NOT_ASKED
    return DescribeGroupsResponse(groups=groups)


def _describe(call: Call, group_id: str) -> DescribedGroup:
    try:
        machine = find_machine(call, group_id, ClassicGroupMachine)
    except ApiError as error:
        return _without(group_id, error.code)
    if machine is None:
        is_error = call.version >= _UNKNOWN_IS_AN_ERROR
        return _without(group_id, ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE)
    description = machine.description()
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=description.state,
        protocol_type=description.protocol_type,
        protocol_data=description.protocol,
        members=[_member(member) for member in description.members],
    )


def _member(member: ClassicMemberDescription) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata,
        member_assignment=member.assignment,
    )


def _without(group_id: str, code: ErrorCode) -> DescribedGroup:
    """Describe a missing group; older clients recognise it by the state "Dead"."""
    is_fine = code is ErrorCode.NONE
    is_dead = is_fine or code is ErrorCode.GROUP_ID_NOT_FOUND
    return DescribedGroup(
        error_code=code,
        error_message=None if is_fine else f"{group_id}: {code.sentence}",
        group_id=group_id,
        group_state="Dead" if is_dead else "",
        protocol_type="",
        protocol_data="",
        members=[],
    )
