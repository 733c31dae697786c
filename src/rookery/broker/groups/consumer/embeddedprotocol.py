"""Converts the embedded consumer protocol of JoinGroup and SyncGroup for consumer groups."""

from __future__ import annotations

from typing import Final

from rookery.broker.coordination.machine import TopicLookup
from rookery.broker.groups.consumer.assign import Places
from rookery.wire.protocols import versionedbytes
from rookery.wire.protocols.consumer import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    read_assignment,
    write_assignment,
)

CONSUMER: Final = "consumer"
"""The protocol type of groups that distribute partitions."""


def places_of(parts: list[AssignedTopic], topics: TopicLookup) -> Places:
    """Return partitions by topic id, without deleted topics."""
    known = ((topics.find(part.topic), part.partitions) for part in parts)
    return frozenset(
        (topic.id, partition)
        for topic, partitions in known
        if topic is not None
        for partition in partitions
    )


def read_places(assignment: bytes, topics: TopicLookup) -> Places:
    """Return the partitions in a classic assignment.

    Raises:
        ProtocolError: the bytes are not an assignment.
    """
    return places_of(read_assignment(assignment).assigned_partitions, topics)


def assignment_bytes(parts: dict[str, list[int]], metadata: bytes) -> bytes:
    """Encode an assignment by topic name, in the version of a member's metadata."""
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedTopic(topic=name, partitions=partitions) for name, partitions in parts.items()
        ]
    )
    newest = versionedbytes.newest(ConsumerProtocolAssignment)
    return write_assignment(assignment, min(versionedbytes.read_prefix(metadata), newest))
