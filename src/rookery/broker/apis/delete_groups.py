"""DeleteGroups: deletes groups without members, with their offsets."""

from __future__ import annotations

import asyncio

from rookery.broker.call import Call, handles
from rookery.broker.decisions import record_changes
from rookery.broker.groups.removal import remove
from rookery.broker.groups.requests import check_group_id, is_too_long
from rookery.errors import Error, ErrorCode, code_of
from rookery.service.audit.changes import deletion_of_group
from rookery.wire.messages.delete_groups import (
    DELETE_GROUPS,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


@handles(
    DELETE_GROUPS,
    versions=range(3),
    mutates=True,
    is_served_read_only=True,
)
async def delete_groups(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete groups that have no members, with their offsets; each group has its own result."""
    names = list(dict.fromkeys(request.groups_names))
    codes = await asyncio.gather(*(_delete(call, name) for name in names))
    for name, code in zip(names, codes, strict=True):
        record_changes(call, [deletion_of_group(name)], code)
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=name, error_code=code)
            for name, code in zip(names, codes, strict=True)
        ]
    )


async def _delete(call: Call, group_id: str) -> ErrorCode:
    try:
        if not is_too_long(group_id):  # an earlier release may have kept it
            check_group_id(group_id)
        await remove(call.services.groups, call.services.replica, group_id)
    except Error as error:
        return code_of(error)
    return ErrorCode.NONE
