"""Passes requests from handlers to group machines; used for all kinds of groups."""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeAlias, TypeVar, cast
from uuid import UUID

from rookery.broker.call import Call
from rookery.broker.coordination.machine import MachineRequest, TopicViewer
from rookery.broker.coordination.seats import HeldRequest
from rookery.broker.groups.machine import GroupMachine
from rookery.cluster.appender import IncarnationFenced
from rookery.errors import ApiError, Error, ErrorCode
from rookery.wire.message import Api, Message

MAX_ID_BYTES: Final = 32_767

Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)
GM = TypeVar("GM", bound=GroupMachine)
Answer: TypeAlias = "Res | asyncio.Future[Res | None]"
"""A machine's response: now, or as a future."""


def hand_over(
    call: Call, api: Api[Req, Res], request: Req, *, creates: bool = False, joins: bool = False
) -> Answer[Res]:
    """Pass the request to the machine of its group.

    Args:
        call: the call.
        api: the API of the request.
        request: names a group.
        creates: whether the request can create the group.
        joins: whether the client may need a member id.

    Raises:
        ApiError: INVALID_GROUP_ID if the name is empty or too long.
    """
    group_id: str = cast("Any", request).group_id
    check_group_id(group_id)
    groups = call.services.groups
    client_id = call.header.client_id or ""
    session = call.connection.session
    event = MachineRequest(
        token=HeldRequest(api, request),
        message=request,
        version=call.version,
        client_id=client_id,
        client_host=_host(call.connection.peer),
        new_member_id=f"{client_id}-{UUID(bytes=call.services.random.token(16))}" if joins else "",
        topics=groups.topics,
        viewer=TopicViewer(session.principal or "", session.host),
    )
    answer = groups.ask(group_id, event, call.connection.when_lost, creates=creates)
    return cast("Answer[Res]", answer)


def find_machine(call: Call, group_id: str, machine: type[GM]) -> GM | None:
    """Return the machine of a group of one kind; None if there is no such group.

    Raises:
        ApiError: INVALID_GROUP_ID if the name is empty or too long; NOT_COORDINATOR if another
            broker has it.
    """
    check_group_id(group_id)
    groups = call.services.groups
    if call.services.is_draining or not groups.is_ours(group_id):
        raise ApiError(ErrorCode.NOT_COORDINATOR)
    group = call.state.groups.by_id.get(group_id)
    seated = groups.machine(group) if group is not None else None
    return seated if isinstance(seated, machine) else None


async def reach_head(call: Call) -> None:
    """Apply the log up to its head, as responses about groups require.

    Raises:
        ApiError: the log is unreachable; the client retries.
    """
    try:
        await call.services.replica.barrier()
    except Error as error:
        raise refusal(error) from error


def refusal(error: BaseException) -> ApiError:
    """Return the error to send to a client when a coordinator fails."""
    fenced = isinstance(error, IncarnationFenced)
    code = ErrorCode.NOT_COORDINATOR if fenced else ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ApiError(code, str(error))


def check_group_id(group_id: str) -> None:
    """Refuse a group without a name, or with one that older versions cannot carry."""
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group's name is empty")
    if is_too_long(group_id):
        raise ApiError(ErrorCode.INVALID_GROUP_ID, f"the group's name exceeds {MAX_ID_BYTES} bytes")


def is_too_long(name: str) -> bool:
    """Return whether a name is longer than the strings of older versions can be."""
    # A character needs four bytes at most, and names are short.
    return 4 * len(name) > MAX_ID_BYTES and len(name.encode()) > MAX_ID_BYTES


def _host(peer: str) -> str:
    """Return a client's address in Kafka's format."""
    return "/" + peer.rpartition(":")[0].strip("[]")
