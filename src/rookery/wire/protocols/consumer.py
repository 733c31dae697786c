"""Messages between consumers of a classic group, carried by JoinGroup and SyncGroup.

To the coordinator these are opaque bytes. A subscription goes from each member to the leader
(JoinGroup's metadata), an assignment from the leader to each member (SyncGroup's assignment). Both
begin with a version, and readers ignore the unknown part of newer versions.
"""

from __future__ import annotations

from rookery.wire.buffer import Buffer
from rookery.wire.message import Message, PartitionId, TopicName, field, i32
from rookery.wire.protocols import versionedbytes


class ConsumerProtocolSubscription(Message, versions=range(4), flexible=None):
    """The topics that a member subscribes to.

    Versions:
        1 adds what the member owns already, for cooperative rebalancing (KIP-429).
        2 adds the generation in which it got that, to settle double claims (KIP-792).
        3 adds the member's rack (KIP-881).
    """

    topics: list[TopicName]
    user_data: bytes | None = None  # for the assignor; the sticky one keeps its memory here
    owned_partitions: list[AssignedTopic] = field(since=1, factory=list)
    generation_id: i32 = field(since=2, default=-1)
    rack_id: str | None = field(since=3, default=None)


class ConsumerProtocolAssignment(Message, versions=range(4), flexible=None):
    """The partitions assigned to a member; all versions are alike."""

    assigned_partitions: list[AssignedTopic]
    user_data: bytes | None = None


class AssignedTopic(Message):
    """Partitions of one topic."""

    topic: TopicName
    partitions: list[PartitionId]


def read_subscription(buffer: Buffer) -> ConsumerProtocolSubscription:
    """Read a subscription of any version, as far as we know it.

    Raises:
        ProtocolError: the bytes are not a subscription.
    """
    return versionedbytes.read_leniently(ConsumerProtocolSubscription, buffer)[0]


def write_subscription(subscription: ConsumerProtocolSubscription, version: int = 3) -> bytes:
    """Write a subscription, version first."""
    return versionedbytes.write(subscription, version)


def read_assignment(buffer: Buffer) -> ConsumerProtocolAssignment:
    """Read an assignment of any version, as far as we know it.

    Raises:
        ProtocolError: the bytes are not an assignment.
    """
    return versionedbytes.read_leniently(ConsumerProtocolAssignment, buffer)[0]


def write_assignment(assignment: ConsumerProtocolAssignment, version: int = 3) -> bytes:
    """Write an assignment, version first."""
    return versionedbytes.write(assignment, version)
