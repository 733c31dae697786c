"""Migration of groups with members between the two group protocols.

    classic ──the first member of the consumer protocol joins──► consumer, and mixed at first
       ▲                                                              │
       └──────the last one leaves, and classic members remain─────────┘

On an upgrade, all members keep their partitions. The classic generation becomes the epoch of all
members, and their assignments become both their current partitions and their target. On a
downgrade, members must rejoin unless all of them have reached their target.
"""

from __future__ import annotations

from rookery.broker.coordination.machine import TopicLookup
from rookery.broker.groups.classic.group import ClassicGroup, ClassicState
from rookery.broker.groups.classic.machine import ClassicGroupMachine
from rookery.broker.groups.classic.rebalance import prepare, resume
from rookery.broker.groups.classic.roster import RosterMember
from rookery.broker.groups.consumer.assign import Place, Places
from rookery.broker.groups.consumer.embeddedprotocol import (
    CONSUMER,
    assignment_bytes,
    places_of,
    read_places,
)
from rookery.broker.groups.consumer.group import ConsumerGroup
from rookery.broker.groups.consumer.machine import ConsumerGroupMachine
from rookery.broker.groups.consumer.member import ClassicTerms, GroupMember
from rookery.broker.groups.consumer.persistence import by_name
from rookery.broker.groups.consumer.reconcile import MemberHolding
from rookery.broker.groups.settings import ConsumerSettings
from rookery.errors import ProtocolError
from rookery.wire.protocols.consumer import read_subscription


def why_not_up(group: ClassicGroup, settings: ConsumerSettings) -> str:
    """Return why a classic group with members cannot be upgraded; empty if it can."""
    if not settings.may_upgrade:
        return f"the migration policy is {settings.migration_policy}"
    if group.protocol_type != CONSUMER:
        return f"its protocol type is {group.protocol_type!r}"
    if len(group.roster) > settings.max_size:
        return f"it has {len(group.roster)} members; {settings.max_size} are allowed"
    return ""


def upgrade(
    before: ClassicGroup, settings: ConsumerSettings, topics: TopicLookup, now_ms: int
) -> ConsumerGroupMachine:
    """Return the consumer group for a classic group, which is not modified.

    Raises:
        ProtocolError: the members' metadata is not the embedded consumer protocol.
    """
    group = ConsumerGroup(before.group_id, settings, before.generation, before.settings)
    taken: set[Place] = set()
    for classic in before.roster.members.values():
        member = _upgrade_member(classic, before, topics, frozenset(taken))
        taken |= member.holding.assigned
        group.seat(member)
        group.target[member.member_id] = member.holding.assigned
        group.touch(member, now_ms)
    return ConsumerGroupMachine(group)


def _upgrade_member(
    classic: RosterMember, group: ClassicGroup, topics: TopicLookup, taken: Places
) -> GroupMember:
    """Return a classic member as a member of a consumer group, with its current partitions."""
    terms = ClassicTerms(classic.session_timeout_ms, dict(classic.protocols))
    read_subscription(terms.protocols[terms.protocol])  # later assignments use this one
    subscription = read_subscription(terms.protocols[group.protocol or terms.protocol])
    if classic.assignment:
        owned = read_places(classic.assignment, topics)
    else:
        # A rebalance was interrupted: only the member's own report is known.
        owned = places_of(subscription.owned_partitions, topics)
    return GroupMember(
        member_id=classic.member_id,
        instance_id=classic.instance_id,
        rack_id=subscription.rack_id or None,
        client_id=classic.client_id,
        client_host=classic.client_host,
        rebalance_timeout_ms=classic.rebalance_timeout_ms,
        names=frozenset(subscription.topics),
        # A partition has one owner here, even if the members' own assignor chose several.
        holding=MemberHolding(group.generation, owned - taken),
        previous_epoch=group.generation,
        classic=terms,
    )


def downgrade(before: ConsumerGroup, now_ms: int) -> ClassicGroupMachine:
    """Return the classic group for a consumer group with only classic members.

    Its generation is the last epoch that members were sent. Members in that epoch continue to send
    heartbeats and are asked to rejoin.
    """
    group = ClassicGroup(before.group_id, before.classic)
    group.state, group.generation = ClassicState.STABLE, before.target_epoch
    group.protocol_type = CONSUMER
    ids = before.topic_ids
    favourites = set()
    for member in before.members.values():
        classic = _downgrade_member(member, ids)
        group.roster.add(classic)
        favourites.add(next(iter(classic.protocols)))
    group.protocol = group.roster.choose_protocol()
    resume(group, now_ms)
    group.mark()
    has_all = before.epoch == before.target_epoch and next(before.find_unsettled(), None) is None
    if not has_all or favourites != {group.protocol}:
        prepare(group, now_ms)
    return ClassicGroupMachine(group)


def _downgrade_member(member: GroupMember, ids: dict[str, bytes]) -> RosterMember:
    if member.classic is None:
        raise ProtocolError(f"member {member.member_id!r} does not use the classic protocol")
    terms = member.classic
    parts = by_name(member.holding.all_places, ids)
    return RosterMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=terms.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=dict(terms.protocols),
        assignment=assignment_bytes(parts, terms.protocols[terms.protocol]),
    )
