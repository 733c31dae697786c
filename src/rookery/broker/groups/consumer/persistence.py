"""The persisted state of a consumer group (KIP-848): everything that members depend on."""

from __future__ import annotations

from collections.abc import Iterable

from rookery.broker.groups.consumer.assign import Places
from rookery.broker.groups.consumer.member import ClassicTerms, GroupMember
from rookery.broker.groups.consumer.reconcile import MemberHolding
from rookery.errors import ApiError, Corrupt, ProtocolError
from rookery.wire.message import (
    GroupId,
    MemberId,
    Message,
    PartitionId,
    TopicId,
    TopicName,
    field,
    i32,
)
from rookery.wire.protocols import versionedbytes


class ConsumerGroupBody(Message, versions=range(2), flexible=0):
    """The last persisted state of a consumer group.

    Versions:
        1 has members that use the classic protocol.
    """

    group_id: GroupId
    epoch: i32
    target_epoch: i32
    assignor: str
    topics: list[KeptTopic]  # as used by the target assignment
    members: list[KeptMember]


class KeptTopic(Message):
    """A topic that a member subscribes to."""

    topic_id: TopicId
    name: TopicName
    partitions: i32


class KeptMember(Message):
    """One member, with its subscription, its assignment and its target."""

    member_id: MemberId
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: i32
    topic_names: list[TopicName]
    topic_regex: str
    assignor: str | None
    epoch: i32
    previous_epoch: i32
    is_waiting: bool
    assigned: list[KeptPlaces]
    revoked: list[KeptPlaces]
    target: list[KeptPlaces]
    classic: KeptTerms | None = field(since=1, default=None)


class KeptTerms(Message):
    """The parameters with which a classic-protocol member joined."""

    session_timeout_ms: i32
    protocols: list[KeptProtocol]


class KeptProtocol(Message):
    """An assignor that a classic member supports, and the member's metadata for it."""

    name: str
    metadata: bytes


class KeptPlaces(Message):
    """Partitions of one topic."""

    topic_id: TopicId
    partitions: list[PartitionId]


def write_body(group: ConsumerGroupBody) -> bytes:
    """Encode a group in the oldest version that can represent it, for older brokers."""
    is_mixed = any(member.classic is not None for member in group.members)
    return versionedbytes.write(group, 1 if is_mixed else 0)


def read_body(body: bytes) -> ConsumerGroupBody:
    """Decode a group.

    Raises:
        Corrupt: the bytes are not a group, or the version is newer than ours.
    """
    try:
        group, _ = versionedbytes.read_exactly(ConsumerGroupBody, body)
    except ProtocolError as error:
        raise Corrupt(f"a consumer group's state cannot be read: {error}") from error
    except ApiError as error:
        text = f"a consumer group's state is newer than this broker: {error.text}"
        raise Corrupt(text) from error
    return group


def by_topic(places: Places) -> dict[bytes, list[int]]:
    """Group partitions by topic, both in order."""
    gathered: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(places):
        gathered.setdefault(topic_id, []).append(partition)
    return gathered


def by_name(places: Places, ids: dict[str, bytes]) -> dict[str, list[int]]:
    """Group partitions by topic name, without deleted topics."""
    gathered = by_topic(places)
    return {name: gathered[topic_id] for name, topic_id in ids.items() if topic_id in gathered}


def from_member(member: GroupMember, target: Places) -> KeptMember:
    """Return the persisted form of a member."""
    return KeptMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=sorted(member.names),
        topic_regex=member.regex,
        assignor=member.assignor,
        epoch=member.epoch,
        previous_epoch=member.previous_epoch,
        is_waiting=member.holding.is_waiting,
        assigned=from_places(member.holding.assigned),
        revoked=from_places(member.holding.revoked),
        target=from_places(target),
        classic=None if member.classic is None else _from_terms(member.classic),
    )


def to_member(kept: KeptMember) -> GroupMember:
    """Return the member for its persisted form."""
    holding = MemberHolding(
        kept.epoch, to_places(kept.assigned), to_places(kept.revoked), kept.is_waiting
    )
    return GroupMember(
        member_id=kept.member_id,
        instance_id=kept.instance_id,
        rack_id=kept.rack_id,
        client_id=kept.client_id,
        client_host=kept.client_host,
        rebalance_timeout_ms=kept.rebalance_timeout_ms,
        names=frozenset(kept.topic_names),
        regex=kept.topic_regex,
        assignor=kept.assignor,
        holding=holding,
        previous_epoch=kept.previous_epoch,
        classic=None if kept.classic is None else _to_terms(kept.classic),
    )


def to_places(kept: Iterable[KeptPlaces]) -> Places:
    """Return the partitions for their persisted form."""
    return frozenset((row.topic_id, partition) for row in kept for partition in row.partitions)


def _from_terms(terms: ClassicTerms) -> KeptTerms:
    return KeptTerms(
        session_timeout_ms=terms.session_timeout_ms,
        protocols=[
            KeptProtocol(name=name, metadata=metadata) for name, metadata in terms.protocols.items()
        ],
    )


def _to_terms(kept: KeptTerms) -> ClassicTerms:
    protocols = {protocol.name: protocol.metadata for protocol in kept.protocols}
    return ClassicTerms(kept.session_timeout_ms, protocols)


def from_places(places: Places) -> list[KeptPlaces]:
    """Return the persisted form of partitions."""
    return [
        KeptPlaces(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in by_topic(places).items()
    ]
