"""ConsumerGroupHeartbeat: a member joins, reports changes, moves to its target, or leaves.

`machine.py` documents the rules.
"""

from __future__ import annotations

from typing import Final

from rookery.broker.coordination.machine import MachineRequest
from rookery.broker.groups.consumer.admission import find_or_admit, identify_current
from rookery.broker.groups.consumer.assign import Places
from rookery.broker.groups.consumer.group import ConsumerGroup
from rookery.broker.groups.consumer.heartbeatcheck import check, invalid, is_full, read_owned
from rookery.broker.groups.consumer.member import AWAY, JOINING, LEAVING, GroupMember
from rookery.broker.groups.consumer.persistence import by_topic
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_REPEATS: Final = 10
"""The maximum number of times an assignment is repeated until the member reports it."""


def answer_heartbeat(
    group: ConsumerGroup,
    request: MachineRequest,
    message: ConsumerGroupHeartbeatRequest,
    now_ms: int,
) -> ConsumerGroupHeartbeatResponse:
    """Answer a heartbeat, by which a member joins, moves to its target or leaves."""
    try:
        check(message, request.version)
        if message.member_epoch in (LEAVING, AWAY):
            return _leave(group, message)
        return _heartbeat(group, request, message, now_ms)
    except ApiError as error:
        return ConsumerGroupHeartbeatResponse(
            error_code=error.code,
            error_message=error.text,
            member_id=message.member_id,
            member_epoch=0,
            heartbeat_interval_ms=0,
        )


def _heartbeat(
    group: ConsumerGroup,
    request: MachineRequest,
    message: ConsumerGroupHeartbeatRequest,
    now_ms: int,
) -> ConsumerGroupHeartbeatResponse:
    member = group.members.get(message.member_id)
    if member is not None and _is_idle(group, request, message, member):
        group.touch(member, now_ms)
        return _response(group, member)
    _check_subscription(group, request, message)
    is_joining = message.member_epoch == JOINING
    member = (
        find_or_admit(group, request, message) if is_joining else identify_current(group, message)
    )
    before = member.subscription
    group.timeouts.end_classic(member)
    group.is_dirty |= member.update(request, message)
    group.refresh(
        request.topics,
        is_changed=member.subscription != before,
        is_stale=not group.subscriptions.sees_same(member),
    )
    reported = read_owned(message)
    if group.reconcile(member, reported, now_ms):
        member.repeats_left = _REPEATS
    elif reported == member.holding.assigned:
        member.repeats_left = 0
    group.touch(member, now_ms)
    sends_assignment = is_joining or is_full(message) or member.repeats_left > 0
    member.repeats_left = max(member.repeats_left - 1, 0)
    return _response(group, member, member.holding.assigned if sends_assignment else None)


def _is_idle(
    group: ConsumerGroup,
    request: MachineRequest,
    message: ConsumerGroupHeartbeatRequest,
    member: GroupMember,
) -> bool:
    """Return whether a heartbeat has no effect: it changes nothing, and no step is pending."""
    changes_nothing = (
        message.topic_partitions is None
        and message.subscribed_topic_names is None
        and message.subscribed_topic_regex is None
        and message.rebalance_timeout_ms < 0
        and message.server_assignor is None
        and message.instance_id == member.instance_id
        and request.client_id == member.client_id
        and request.client_host == member.client_host
        and request.viewer == member.viewer
    )
    return (
        changes_nothing
        and not member.repeats_left
        and member.classic is None
        and message.member_epoch == member.epoch
        and group.is_settled(member)
        and group.subscriptions.is_current(request.topics)
    )


def _check_subscription(
    group: ConsumerGroup, request: MachineRequest, message: ConsumerGroupHeartbeatRequest
) -> None:
    """Refuse an invalid regular expression, and subscriptions that exceed the size limit."""
    names, regex = message.subscribed_topic_names, message.subscribed_topic_regex
    if names is not None:
        others = (
            member for member in group.members.values() if member.member_id != message.member_id
        )
        size = sum(map(len, names)) + sum(len(name) for member in others for name in member.names)
        if size > group.settings.max_bytes:
            raise invalid(
                f"the subscriptions of group {group.group_id!r} would take {size} bytes; "
                f"{group.settings.max_bytes} are allowed: use a regular expression"
            )
    if regex:
        group.subscriptions.check(regex, request.topics)


def _response(
    group: ConsumerGroup, member: GroupMember, assigned: Places | None = None
) -> ConsumerGroupHeartbeatResponse:
    settings, is_waiting = group.settings, member.holding.is_waiting
    interval_ms = settings.waiting_interval_ms if is_waiting else settings.heartbeat_interval_ms
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=min(interval_ms, settings.heartbeat_interval_ms),
        assignment=None if assigned is None else _assignment(assigned),
    )


def _assignment(places: Places) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic(places).items()
        ]
    )


def _leave(
    group: ConsumerGroup, message: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    member = group.identify(message.member_id, message.instance_id)
    if message.member_epoch == AWAY:
        group.send_away(member)
    else:
        group.remove(member)
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        heartbeat_interval_ms=0,
    )
