"""Members of a consumer group that use the classic protocol while the group migrates.

The coordinator assigns partitions to them as to the others, and uses the classic requests:

| request    | what it does                                                                      |
|------------|-----------------------------------------------------------------------------------|
| JoinGroup  | sends the member's subscription and partitions, takes its next step (`mixedjoin`) |
| SyncGroup  | returns the partitions that the member can own                                    |
| Heartbeat  | extends the session; REBALANCE_IN_PROGRESS if the member must take a step         |
| LeaveGroup | removes the member; tools can remove others, too                                  |

A member's generation is its member epoch, and it is never made leader. No request is held: a member
that waits for partitions of others learns by a later Heartbeat that they are free. A member is
removed if it does not rejoin within its rebalance timeout, or does not sync after it joined.
"""

from __future__ import annotations

from typing import Final

from rookery.broker.coordination.machine import MachineRequest
from rookery.broker.groups.classic.group import refusal
from rookery.broker.groups.consumer.embeddedprotocol import CONSUMER, assignment_bytes
from rookery.broker.groups.consumer.group import ConsumerGroup
from rookery.broker.groups.consumer.member import GroupMember
from rookery.broker.groups.consumer.mixedjoin import join
from rookery.broker.groups.consumer.persistence import by_name
from rookery.errors import ApiError, ErrorCode
from rookery.wire.message import Message
from rookery.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from rookery.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from rookery.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from rookery.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_BATCHED_SINCE: Final = 3


def answer(group: ConsumerGroup, request: MachineRequest, now_ms: int) -> Message:
    """Answer a request of the classic protocol."""
    match request.message:
        case HeartbeatRequest() as message:
            return HeartbeatResponse(error_code=_heartbeat(group, request, message, now_ms))
        case JoinGroupRequest() as message:
            return _join(group, request, message, now_ms)
        case SyncGroupRequest() as message:
            return _sync(group, message, now_ms)
        case LeaveGroupRequest() as message:
            return _leave(group, request, message)
        case message:
            raise TypeError(f"a consumer group cannot answer a {type(message).__name__}")


def _join(
    group: ConsumerGroup, request: MachineRequest, message: JoinGroupRequest, now_ms: int
) -> JoinGroupResponse:
    try:
        return join(group, request, message, now_ms)
    except ApiError as error:
        needs_id = error.code is ErrorCode.MEMBER_ID_REQUIRED
        member_id = request.new_member_id if needs_id else message.member_id
        return refusal(request, error.code, member_id)


def _heartbeat(
    group: ConsumerGroup, request: MachineRequest, message: HeartbeatRequest, now_ms: int
) -> ErrorCode:
    try:
        member = _classic_member(group, message.member_id, message.group_instance_id)
        _check_generation(member, message.generation_id)
    except ApiError as error:
        return error.code
    group.touch(member, now_ms)
    if not group.subscriptions.is_current(request.topics):
        group.refresh(request.topics, is_changed=False)
    if not _has_next_step(group, member):
        return ErrorCode.NONE
    group.timeouts.await_join(member, now_ms)
    return ErrorCode.REBALANCE_IN_PROGRESS


def _has_next_step(group: ConsumerGroup, member: GroupMember) -> bool:
    """Return whether a member would make progress by joining again."""
    if member.epoch < group.epoch:
        return True
    return member.holding.is_waiting and group.is_next_free(member)


def _sync(group: ConsumerGroup, message: SyncGroupRequest, now_ms: int) -> SyncGroupResponse:
    try:
        member = _classic_member(group, message.member_id, message.group_instance_id)
        _check_generation(member, message.generation_id)
        assigned = _part(group, member, message, now_ms)
    except ApiError as error:
        return SyncGroupResponse(error_code=error.code, assignment=b"")
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=message.protocol_type,
        protocol_name=message.protocol_name,
        assignment=assigned,
    )


def _part(
    group: ConsumerGroup, member: GroupMember, message: SyncGroupRequest, now_ms: int
) -> bytes:
    """Return the member's assignment, unless it must rejoin first."""
    assert member.classic is not None  # noqa: S101 (`_classic_member` checks it)
    protocol = member.classic.protocol
    is_type = message.protocol_type in (None, CONSUMER)
    if not is_type or message.protocol_name not in (None, protocol):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if member.epoch < group.epoch and not member.holding.revoked:
        # A member that must revoke partitions has to learn of it first; it then rejoins by itself.
        group.timeouts.await_join(member, now_ms)
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
    group.timeouts.end_sync(member)
    group.touch(member, now_ms)
    parts = by_name(member.holding.assigned, group.topic_ids)
    return assignment_bytes(parts, member.classic.protocols[protocol])


def _leave(group: ConsumerGroup, request: MachineRequest, message: LeaveGroupRequest) -> Message:
    is_batched = request.version >= _BATCHED_SINCE
    leaving = message.members if is_batched else [MemberIdentity(member_id=message.member_id)]
    answers = [_leave_one(group, identity) for identity in leaving]
    if is_batched:
        return LeaveGroupResponse(error_code=ErrorCode.NONE, members=answers)
    return LeaveGroupResponse(error_code=answers[0].error_code)


def _leave_one(group: ConsumerGroup, identity: MemberIdentity) -> MemberResponse:
    """Remove one member of either protocol; tools can name a static one by its instance id."""
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if not member_id and instance_id is not None:
        member_id = group.static.get(instance_id, "")
    response = MemberResponse(
        member_id=identity.member_id, group_instance_id=instance_id, error_code=ErrorCode.NONE
    )
    try:
        group.remove(group.identify(member_id, instance_id))
        response.member_id = member_id
    except ApiError as error:
        response.error_code = error.code
    return response


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> GroupMember:
    """Return the member if it uses the classic protocol."""
    member = group.identify(member_id, instance_id)
    if member.classic is None:
        raise ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id!r} uses the consumer protocol"
        )
    return member


def _check_generation(member: GroupMember, generation: int) -> None:
    if generation != member.epoch:
        raise ApiError(
            ErrorCode.ILLEGAL_GENERATION,
            f"member {member.member_id!r} is in generation {member.epoch}, not {generation}",
        )
