"""Validation of ConsumerGroupHeartbeat requests, independent of the group's state."""

from __future__ import annotations

from typing import Final

from rookery.broker.groups.consumer.assign import ASSIGNORS, Places
from rookery.broker.groups.consumer.member import AWAY, JOINING
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_CLIENT_MAKES_ID_SINCE: Final = 1


def check(message: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Refuse a request that is invalid for any member.

    Raises:
        ApiError: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.
    """
    if message.instance_id == "" or message.rack_id == "":
        raise invalid("the instance id and the rack id must not be empty; omit them instead")
    if message.member_epoch < AWAY:
        raise invalid(f"{message.member_epoch} is not a member epoch")
    is_joining = message.member_epoch == JOINING
    if not message.member_id and (not is_joining or version >= _CLIENT_MAKES_ID_SINCE):
        raise invalid("the member id is empty")
    if message.member_epoch == AWAY and message.instance_id is None:
        raise invalid("only a static member, which sends its instance id, can leave temporarily")
    if is_joining:
        _check_join(message)
    if message.server_assignor is not None and message.server_assignor not in ASSIGNORS:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"there is no assignor {message.server_assignor!r}; use one of {', '.join(ASSIGNORS)}",
        )


def _check_join(message: ConsumerGroupHeartbeatRequest) -> None:
    if message.rebalance_timeout_ms < 0:
        raise invalid("a joining member must set its rebalance timeout")
    if message.topic_partitions is None or message.topic_partitions:
        raise invalid("a joining member must report an empty list of owned partitions")
    if message.subscribed_topic_names is None and message.subscribed_topic_regex is None:
        raise invalid(
            "a joining member must set its subscription; an empty list of topics is allowed"
        )


def invalid(text: str) -> ApiError:
    """Return the error for an invalid request."""
    return ApiError(ErrorCode.INVALID_REQUEST, text)


def is_full(message: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether all fields are set, as they are after a member has missed a response."""
    names, regex = message.subscribed_topic_names, message.subscribed_topic_regex
    has_subscription = names is not None or regex is not None
    has_rest = message.rebalance_timeout_ms >= 0 and message.topic_partitions is not None
    return has_subscription and has_rest


def read_owned(message: ConsumerGroupHeartbeatRequest) -> Places | None:
    """Return the partitions that a member reports as owned; None if the field is not set."""
    if message.topic_partitions is None:
        return None
    return frozenset(
        (topic.topic_id, partition)
        for topic in message.topic_partitions
        for partition in topic.partitions
    )
