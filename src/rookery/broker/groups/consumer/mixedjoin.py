"""JoinGroup for consumer groups: admits members that use the classic protocol.

No request is held here. For a classic member a JoinGroup has the role of a heartbeat, and it is
answered immediately.
"""

from __future__ import annotations

from typing import Final

from rookery.broker.coordination.machine import MachineRequest
from rookery.broker.groups.consumer.embeddedprotocol import CONSUMER, places_of
from rookery.broker.groups.consumer.group import ConsumerGroup
from rookery.broker.groups.consumer.member import ClassicSubscription, ClassicTerms, GroupMember
from rookery.errors import ApiError, ErrorCode, ProtocolError
from rookery.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from rookery.wire.protocols.consumer import ConsumerProtocolSubscription, read_subscription

_ID_FIRST_SINCE: Final = 4


def join(
    group: ConsumerGroup, request: MachineRequest, message: JoinGroupRequest, now_ms: int
) -> JoinGroupResponse:
    """Admit a new or rejoining member, and take its next step.

    Raises:
        ApiError: the member is refused.
    """
    terms = ClassicTerms(
        message.session_timeout_ms,
        {protocol.name: protocol.metadata for protocol in message.protocols},
    )
    _check(group, message, terms)
    subscription = _read(terms)
    is_dynamic = message.group_instance_id is None
    if not message.member_id and is_dynamic and request.version >= _ID_FIRST_SINCE:
        raise ApiError(ErrorCode.MEMBER_ID_REQUIRED)
    member = _find_or_add(group, request, message)
    _update(group, request, member, terms, subscription)
    group.reconcile(member, places_of(subscription.owned_partitions, request.topics), now_ms)
    group.touch(member, now_ms)
    group.timeouts.await_sync(member, now_ms)
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=member.epoch,
        protocol_type=CONSUMER,
        protocol_name=terms.protocol,
        leader="",
        member_id=member.member_id,
        members=[],
    )


def _check(group: ConsumerGroup, message: JoinGroupRequest, terms: ClassicTerms) -> None:
    """Refuse a request that is invalid for any member."""
    bounds = group.classic
    session_ms = message.session_timeout_ms
    if not bounds.min_session_timeout_ms <= session_ms <= bounds.max_session_timeout_ms:
        raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT, f"{session_ms} ms")
    if group.settings.migration_policy == "disabled":
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {group.group_id!r} is a consumer group, and migration is disabled",
        )
    if len(group.members) >= group.settings.max_size and not _is_known(group, message):
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.group_id!r} has {len(group.members)} members, which is the limit",
        )
    others = group.classic_members
    if message.protocol_type != CONSUMER or not _is_understood(terms, others):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the classic members of group {group.group_id!r} have no protocol in common with it",
        )
    sizes = (
        member.classic.size_bytes
        for member in others
        if member.classic and not _is(member, message)
    )
    if terms.size_bytes + sum(sizes) > bounds.max_bytes:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"{terms.size_bytes} bytes of metadata")


def _is_known(group: ConsumerGroup, message: JoinGroupRequest) -> bool:
    """Return whether the member is already in the group or replaces one that is."""
    return message.member_id in group.members or message.group_instance_id in group.static


def _is(member: GroupMember, message: JoinGroupRequest) -> bool:
    """Return whether the member is the one that joins or is replaced by it."""
    instance_id = message.group_instance_id
    is_instance = instance_id is not None and instance_id == member.instance_id
    return is_instance or member.member_id == message.member_id


def _is_understood(terms: ClassicTerms, others: list[GroupMember]) -> bool:
    """Return whether all classic members share a protocol, as a later downgrade requires."""
    return any(
        all(member.classic is not None and name in member.classic.protocols for member in others)
        for name in terms.protocols
    )


def _read(terms: ClassicTerms) -> ConsumerProtocolSubscription:
    """Decode a member's subscription; it is the same in all its protocols."""
    try:
        return read_subscription(terms.protocols[terms.protocol])
    except ProtocolError as error:
        text = f"the metadata for protocol {terms.protocol!r} is not a subscription: {error}"
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text) from error


def _find_or_add(
    group: ConsumerGroup, request: MachineRequest, message: JoinGroupRequest
) -> GroupMember:
    """Return the joining member: an existing one, the successor of one, or a new one."""
    member_id, instance_id = message.member_id, message.group_instance_id
    holder = group.static.get(instance_id) if instance_id is not None else None
    if not member_id and holder is not None:
        successor = group.members[holder].succeed(request.new_member_id)
        group.replace(group.members[holder], successor)
        return successor
    is_here = member_id in group.members
    if is_here or (member_id and instance_id is not None):
        return group.identify(member_id, instance_id)
    member = GroupMember(member_id or request.new_member_id, instance_id=instance_id)
    group.add(member)
    return member


def _update(
    group: ConsumerGroup,
    request: MachineRequest,
    member: GroupMember,
    terms: ClassicTerms,
    subscription: ConsumerProtocolSubscription,
) -> None:
    """Update a member from its request, and update the group's assignment."""
    message = request.message
    assert isinstance(message, JoinGroupRequest)  # noqa: S101 (for mypy)
    has_timeout = request.version > 0 and message.rebalance_timeout_ms >= 0
    timeout_ms = message.rebalance_timeout_ms if has_timeout else message.session_timeout_ms
    wants = ClassicSubscription(
        frozenset(subscription.topics), subscription.rack_id or None, timeout_ms
    )
    before = member.subscription
    group.is_dirty |= member.update_classic(request, wants, terms)
    group.refresh(request.topics, is_changed=member.subscription != before)
