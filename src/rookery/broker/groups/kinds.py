"""Which machine a group has: that of the protocol its members speak.

A group without members takes the protocol of whoever comes next. Its numbers go on: no epoch of
one protocol is ever a generation of the other.
"""

from __future__ import annotations

from typing import Any, Final

from rookery.broker.groups.classic import Classic
from rookery.broker.groups.consumer import Consumer
from rookery.broker.groups.machine import Effect, Event, Machine, Reply, Request
from rookery.broker.groups.migration import other_protocol
from rookery.broker.groups.settings import ClassicSettings, ConsumerSettings
from rookery.errors import Corrupt, ErrorCode
from rookery.wire.message import Api, Message
from rookery.wire.messages.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from rookery.wire.messages.heartbeat import HEARTBEAT, HeartbeatRequest
from rookery.wire.messages.join_group import JOIN_GROUP, JoinGroupRequest
from rookery.wire.messages.leave_group import LEAVE_GROUP, LeaveGroupRequest
from rookery.wire.messages.sync_group import SYNC_GROUP, SyncGroupRequest

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"

_CLASSIC_APIS: Final[dict[type[Message], Api[Any, Any]]] = {
    JoinGroupRequest: JOIN_GROUP,
    SyncGroupRequest: SYNC_GROUP,
    HeartbeatRequest: HEARTBEAT,
    LeaveGroupRequest: LEAVE_GROUP,
}


class Kinds:
    """Builds machines, and drives them."""

    def __init__(self, classic: ClassicSettings, consumer: ConsumerSettings | None = None) -> None:
        self._classic = classic
        self._consumer = consumer or ConsumerSettings()

    def load(self, group_id: str, kind: str, body: bytes, now_ms: int) -> Machine:
        """Return a group's machine; with every member's time beginning now.

        Raises:
            Corrupt: the body is not one of this kind, or the kind is newer than this program.
        """
        if not kind:
            return Classic.new(group_id, self._classic)
        if kind == CLASSIC:
            return Classic.load(group_id, body, self._classic, now_ms)
        if kind == CONSUMER:
            return Consumer.load(group_id, body, self._consumer, now_ms)
        raise Corrupt(f"group {group_id!r} is of kind {kind!r}, which this broker does not know")

    def on(
        self, group_id: str, machine: Machine, event: Event, now_ms: int
    ) -> tuple[Machine, list[Effect]]:
        """Have a machine take an event; return the group's machine from now on, and the effects."""
        if isinstance(event, Request) and _speaks_other(machine, event.message):
            if not machine.is_empty or not _is_for_members(event.message):
                return machine, [Reply(event.token, _refusal(event.message))]
            machine = other_protocol(group_id, machine, self._classic, self._consumer)
        return machine, machine.on(event, now_ms)


def _speaks_other(machine: Machine, message: Message) -> bool:
    """Whether a request is none of the protocol that a group's members speak."""
    is_heartbeat = isinstance(message, ConsumerGroupHeartbeatRequest)
    return is_heartbeat is not isinstance(machine, Consumer)


def _is_for_members(message: Message) -> bool:
    """Whether a request may come from somebody who is no member yet."""
    return isinstance(message, ConsumerGroupHeartbeatRequest | JoinGroupRequest)


def _refusal(message: Message) -> Message:
    """Answer somebody who speaks another protocol than the members."""
    if isinstance(message, ConsumerGroupHeartbeatRequest):
        response = CONSUMER_GROUP_HEARTBEAT.refuse(message, ErrorCode.GROUP_ID_NOT_FOUND)
        response.error_message = f"the members of group {message.group_id!r} speak the old protocol"
        return response
    is_join = isinstance(message, JoinGroupRequest)
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL if is_join else ErrorCode.UNKNOWN_MEMBER_ID
    refused: Message = _CLASSIC_APIS[type(message)].refuse(message, code)
    return refused


def kind_of(machine: Machine | None) -> str:
    """Return what a machine's protocol is called."""
    return CONSUMER if isinstance(machine, Consumer) else CLASSIC


def protocol_type_of(machine: Machine) -> str:
    """Return what a group's members call what they do, such as "consumer"; empty if none were."""
    return machine.description().protocol_type if isinstance(machine, Classic) else "consumer"
