"""Finds the member that sends a ConsumerGroupHeartbeat, or admits it to the group."""

from __future__ import annotations

from rookery.broker.coordination.machine import MachineRequest
from rookery.broker.groups.consumer.group import ConsumerGroup
from rookery.broker.groups.consumer.heartbeatcheck import invalid, read_owned
from rookery.broker.groups.consumer.member import AWAY, JOINING, GroupMember
from rookery.broker.groups.consumer.reconcile import NONE
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def find_or_admit(
    group: ConsumerGroup, request: MachineRequest, message: ConsumerGroupHeartbeatRequest
) -> GroupMember:
    """Return the member that joins: a new one, a known one, or the successor of a static one.

    Raises:
        ApiError: GROUP_MAX_SIZE_REACHED, UNRELEASED_INSTANCE_ID or INVALID_REQUEST.
    """
    member_id = message.member_id or request.new_member_id
    if message.instance_id is not None and message.instance_id in group.static:
        return _rejoin_static(group, message, member_id)
    member = group.members.get(member_id)
    if member is not None and member.previous_epoch == JOINING and read_owned(message) == NONE:
        return member  # it did not receive our last response
    if member is not None:
        group.remove(member)
    elif len(group.members) >= group.settings.max_size:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.group_id!r} has {len(group.members)} members, which is the limit",
        )
    member = GroupMember(member_id, instance_id=message.instance_id)
    group.add(member)
    return member


def _rejoin_static(
    group: ConsumerGroup, message: ConsumerGroupHeartbeatRequest, member_id: str
) -> GroupMember:
    """Return a static member that has come back, possibly under another id."""
    holder = group.members[group.static[message.instance_id or ""]]
    if holder.member_id == member_id and holder.epoch != AWAY:
        # The same process: our last response was lost, or it starts again without partitions.
        group.send_away(holder)
    if holder.epoch != AWAY and holder.classic is None:
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"instance id {message.instance_id!r} is in use by member {holder.member_id!r}",
        )
    if member_id != holder.member_id and member_id in group.members:
        raise invalid(f"member {member_id!r} has another instance id")
    successor = holder.succeed(member_id)
    group.replace(holder, successor)
    return successor


def identify_current(group: ConsumerGroup, message: ConsumerGroupHeartbeatRequest) -> GroupMember:
    """Return the member if its epoch is valid.

    Raises:
        ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or FENCED_MEMBER_EPOCH.
    """
    member = group.identify(message.member_id, message.instance_id)
    reported = read_owned(message)
    owns_only_allowed = reported is not None and reported <= member.holding.assigned
    lost_response = message.member_epoch == member.previous_epoch and owns_only_allowed
    if message.member_epoch != member.epoch and not lost_response:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"member {message.member_id!r} is in epoch {member.epoch}, not {message.member_epoch}",
        )
    return member
