"""Consumer group members, in one form for both Kafka group protocols."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.errors import ProtocolError
from rookery.model.partition import TopicPartition
from rookery.wire.messages import consumer_group_describe, describe_groups
from rookery.wire.protocols.consumer import read_assignment


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member and its assigned partitions."""

    member_id: str
    instance_id: str | None
    """The group.instance.id of a static member."""
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members."""

    group_id: str
    kind: str
    """classic or consumer (KIP-848)."""
    state: str
    assignor: str
    members: tuple[MemberDescription, ...]


def from_consumer(row: consumer_group_describe.DescribedGroup) -> GroupDescription:
    """Describe a group of the new protocol (KIP-848)."""
    members = tuple(
        MemberDescription(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            tuple(
                TopicPartition(topic.topic_name, number)
                for topic in member.assignment.topic_partitions
                for number in topic.partitions
            ),
        )
        for member in row.members
    )
    return GroupDescription(row.group_id, "consumer", row.group_state, row.assignor_name, members)


def from_classic(row: describe_groups.DescribedGroup) -> GroupDescription:
    """Describe a group of the classic protocol."""
    members = tuple(
        MemberDescription(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _read_assigned(member.member_assignment) if row.protocol_type == "consumer" else (),
        )
        for member in row.members
    )
    return GroupDescription(row.group_id, "classic", row.group_state, row.protocol_data, members)


def _read_assigned(data: bytes) -> tuple[TopicPartition, ...]:
    if not data:
        return ()  # the group is still rebalancing
    try:
        assignment = read_assignment(data)
    except ProtocolError:
        return ()  # another client's own format
    return tuple(
        TopicPartition(topic.topic, number)
        for topic in assignment.assigned_partitions
        for number in topic.partitions
    )
