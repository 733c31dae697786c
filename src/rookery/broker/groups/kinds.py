"""Which machine a group has: that of the protocol its members speak.

A group without members takes the protocol of whoever comes next. One with members changes it when
the first member of the consumer protocol joins, and when the last one leaves, if the migration
policy lets it; members of a consumer group may speak either. Its numbers go on: no epoch of one
protocol is ever a generation of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from rookery.broker.groups.classic import Classic
from rookery.broker.groups.consumer import Consumer
from rookery.broker.groups.consumermember import JOINING
from rookery.broker.groups.machine import Effect, Event, Machine, Persist, Reply, Request
from rookery.broker.groups.migration import downgrade, other_protocol, upgrade, why_not_up
from rookery.broker.groups.settings import ClassicSettings, ConsumerSettings
from rookery.errors import Corrupt, ErrorCode, ProtocolError
from rookery.wire.messages.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from rookery.wire.messages.join_group import JoinGroupRequest

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"


class Kinds:
    """Builds machines, and drives them."""

    def __init__(
        self,
        classic: ClassicSettings,
        consumer: ConsumerSettings | None = None,
        configs: Callable[[str], Mapping[str, str]] = lambda _: {},
    ) -> None:
        """Make machines.

        Args:
            classic: settings of classic groups.
            consumer: settings of consumer groups.
            configs: returns what is set for one group, by Kafka's names.
        """
        self._classic = classic
        self._consumer = consumer or ConsumerSettings()
        self._configs = configs

    def _settings(self, group_id: str) -> ConsumerSettings:
        configs = self._configs(group_id)
        return self._consumer.override(configs) if configs else self._consumer

    def load(
        self, group_id: str, kind: str, body: bytes, now_ms: int, changes: Iterable[bytes] = ()
    ) -> Machine:
        """Return a group's machine; with every member's time beginning now.

        Args:
            group_id: which group.
            kind: its protocol; empty for a group that was never kept.
            body: what was kept of it as a whole.
            now_ms: the moment.
            changes: what was kept since, by `Persist.change`.

        Raises:
            Corrupt: the body is not one of this kind, or the kind is newer than this program.
        """
        if not kind:
            return Classic.new(group_id, self._classic)
        if kind == CLASSIC:
            return Classic.load(group_id, body, self._classic, now_ms)
        if kind == CONSUMER:
            settings = self._settings(group_id)
            return Consumer.load(group_id, body, settings, now_ms, self._classic, changes)
        raise Corrupt(f"group {group_id!r} is of kind {kind!r}, which this broker does not know")

    def on(
        self, group_id: str, machine: Machine, event: Event, now_ms: int
    ) -> tuple[Machine, list[Effect]]:
        """Have a machine take an event; return the group's machine from now on, and the effects."""
        if isinstance(event, Request) and _wants_other(machine, event):
            if not machine.is_empty:
                return self._upgrade(machine, event, now_ms)
            other = other_protocol(group_id, machine, self._classic, self._settings(group_id))
            effects = other.on(event, now_ms)
            # A heartbeat that joins no member changes nothing; a JoinGroup may only get an id.
            is_taken = _is_kept(effects) or not isinstance(other, Consumer)
            return (other if is_taken else machine), effects
        if isinstance(machine, Consumer):
            machine.group.settings = self._settings(group_id)
        effects = machine.on(event, now_ms)
        if isinstance(machine, Consumer) and self._goes_down(machine, effects):
            return self._downgrade(machine, effects, now_ms)
        return machine, effects

    def _upgrade(
        self, machine: Machine, event: Request, now_ms: int
    ) -> tuple[Machine, list[Effect]]:
        """Let the first member of the consumer protocol in, if its request does not fail."""
        message = event.message
        assert isinstance(machine, Classic)  # noqa: S101 (`_wants_other` saw to it)
        assert isinstance(message, ConsumerGroupHeartbeatRequest)  # noqa: S101 (likewise)
        if message.member_epoch != JOINING:
            return machine, [_refuse(event, message, "nobody of the consumer protocol is in it")]
        reason = why_not_up(machine.group, self._consumer)
        if reason:
            return machine, [_refuse(event, message, reason)]
        try:
            settings = self._settings(machine.group.group_id)
            upgraded = upgrade(machine.group, settings, event.topics, now_ms)
        except ProtocolError as error:
            return machine, [_refuse(event, message, str(error))]
        effects = upgraded.on(event, now_ms)
        if not _is_kept(effects):
            return machine, effects
        return upgraded, [*effects, *machine.close(ErrorCode.REBALANCE_IN_PROGRESS)]

    def _goes_down(self, machine: Consumer, effects: list[Effect]) -> bool:
        """Whether an event has left classic members only."""
        is_allowed = self._consumer.may_downgrade
        if not is_allowed or not _is_kept(effects) or not machine.group.is_classic:
            return False
        return len(machine.group.members) <= self._classic.max_size

    def _downgrade(
        self, machine: Consumer, effects: list[Effect], now_ms: int
    ) -> tuple[Machine, list[Effect]]:
        """Have a classic group kept instead of what the event asked to be kept."""
        downgraded = downgrade(machine.group, now_ms)
        replies = [effect for effect in effects if isinstance(effect, Reply)]
        return downgraded, [*downgraded.effects(), *replies]


def _wants_other(machine: Machine, request: Request) -> bool:
    """Whether a request asks for another machine than its group has."""
    if isinstance(machine, Classic):
        return isinstance(request.message, ConsumerGroupHeartbeatRequest)
    return machine.is_empty and isinstance(request.message, JoinGroupRequest)


def _is_kept(effects: list[Effect]) -> bool:
    """Whether an event has changed what is kept of a group."""
    return any(isinstance(effect, Persist) for effect in effects)


def _refuse(request: Request, message: ConsumerGroupHeartbeatRequest, reason: str) -> Reply:
    """Tell a member of the consumer protocol that the group is a classic one, and stays so."""
    response = CONSUMER_GROUP_HEARTBEAT.refuse(message, ErrorCode.GROUP_ID_NOT_FOUND)
    response.error_message = f"group {message.group_id!r} is no consumer group: {reason}"
    return Reply(request.token, response)


def kind_of(machine: Machine | None) -> str:
    """Return what a machine's protocol is called."""
    return CONSUMER if isinstance(machine, Consumer) else CLASSIC


def protocol_type_of(machine: Machine) -> str:
    """Return what a group's members call what they do, such as "consumer"; empty if none were."""
    return (machine.group.protocol_type or "") if isinstance(machine, Classic) else CONSUMER
