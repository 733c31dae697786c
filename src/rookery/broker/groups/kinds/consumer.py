"""Consumer groups (KIP-848); their members can use the classic protocol during migration."""

from __future__ import annotations

from typing import Final

from rookery.broker.coordination.machine import Effect, Event, MachineRequest, Reply
from rookery.broker.groups.classic.machine import CLASSIC, ClassicGroupMachine
from rookery.broker.groups.consumer.embeddedprotocol import CONSUMER
from rookery.broker.groups.consumer.machine import ConsumerGroupMachine
from rookery.broker.groups.consumer.member import JOINING
from rookery.broker.groups.kind import GroupKind, GroupSettings, Step, StoredGroup, is_persisted
from rookery.broker.groups.migration import downgrade, upgrade, why_not_up
from rookery.broker.groups.settings import ConsumerSettings
from rookery.errors import ErrorCode, ProtocolError
from rookery.wire.messages.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from rookery.wire.messages.heartbeat import HEARTBEAT
from rookery.wire.messages.join_group import JOIN_GROUP
from rookery.wire.messages.leave_group import LEAVE_GROUP
from rookery.wire.messages.sync_group import SYNC_GROUP


def _new(group_id: str, settings: GroupSettings, epoch: int) -> ConsumerGroupMachine:
    return ConsumerGroupMachine.new(
        group_id, _settings(group_id, settings), epoch, settings.classic
    )


def _load(stored: StoredGroup, settings: GroupSettings, now_ms: int) -> ConsumerGroupMachine:
    group_id, body, changes = stored
    own = _settings(group_id, settings)
    return ConsumerGroupMachine.load(group_id, body, own, now_ms, settings.classic, changes)


def _settings(group_id: str, settings: GroupSettings) -> ConsumerSettings:
    configs = settings.configs(group_id)
    return settings.consumer.override(configs) if configs else settings.consumer


def _on(machine: ConsumerGroupMachine, event: Event, settings: GroupSettings, now_ms: int) -> Step:
    """Pass an event to a group; it becomes a classic one if only classic members remain."""
    group = machine.group
    group.settings = _settings(group.group_id, settings)
    effects = machine.on(event, now_ms)
    if not _goes_down(machine, effects, settings):
        return machine, effects
    downgraded = downgrade(group, now_ms)
    # The persist of the classic group replaces that of the event.
    replies = [effect for effect in effects if isinstance(effect, Reply)]
    return downgraded, [*downgraded.effects(), *replies]


def _goes_down(
    machine: ConsumerGroupMachine, effects: list[Effect], settings: GroupSettings
) -> bool:
    """Return whether only classic members remain after an event."""
    is_allowed = settings.consumer.may_downgrade
    if not is_allowed or not is_persisted(effects) or not machine.group.is_classic:
        return False
    return len(machine.group.members) <= settings.classic.max_size


def _upgrade(
    machine: ClassicGroupMachine, event: MachineRequest, settings: GroupSettings, now_ms: int
) -> Step:
    """Admit the first member of the consumer protocol if its request is valid."""
    message = event.message
    assert isinstance(message, ConsumerGroupHeartbeatRequest)  # noqa: S101 (that of `joined_by`)
    if message.member_epoch != JOINING:
        return machine, [_refuse(event, message, "no member of the consumer protocol is in it")]
    reason = why_not_up(machine.group, settings.consumer)
    if reason:
        return machine, [_refuse(event, message, reason)]
    try:
        own = _settings(machine.group.group_id, settings)
        upgraded = upgrade(machine.group, own, event.topics, now_ms)
    except ProtocolError as error:
        return machine, [_refuse(event, message, str(error))]
    effects = upgraded.on(event, now_ms)
    if not is_persisted(effects):
        return machine, effects
    return upgraded, [*effects, *machine.close(ErrorCode.REBALANCE_IN_PROGRESS)]


def _refuse(request: MachineRequest, message: ConsumerGroupHeartbeatRequest, reason: str) -> Reply:
    """Refuse a member of the consumer protocol, since the group stays a classic one."""
    response = CONSUMER_GROUP_HEARTBEAT.refuse(message, KIND.mismatch)
    response.error_message = f"group {message.group_id!r} is not a consumer group: {reason}"
    return Reply(request.token, response)


KIND: Final[GroupKind[ConsumerGroupMachine]] = GroupKind(
    name=CONSUMER,
    joined_by=CONSUMER_GROUP_HEARTBEAT,
    answers=(CONSUMER_GROUP_HEARTBEAT, JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP),
    new=_new,
    load=_load,
    on=_on,
    succeeds=frozenset({CLASSIC}),
    upgrade=_upgrade,
)
