"""Groups: their coordinators, their members' state and their committed offsets.

    claimed (epoch + 1) ──► persisted, changed (version + 1) … ──► deleted, or expired
                       └──► offsets committed, deleted, expired

Everything but a claim counts only from the broker that holds the claim, in the claim's epoch.
Events of a coordinator that was replaced are void. A hash of the group id decides which broker can
claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from rookery.cluster.events.groupevents import OffsetCommitted
from rookery.cluster.state.topics import leader_of

GROUP_CHANGES_LEVEL: Final = 2
"""The first feature level at which `GroupChanged` may be proposed."""
_HEAD: Final = Struct(">qiqq")


class GroupOffset(NamedTuple):
    """The next offset that a group reads in a partition, with its metadata."""

    offset: int
    leader_epoch: int
    commit_ms: int
    retention_ms: int
    """The retention requested by the client that committed it; -1 if none."""
    metadata: str


def pack(event: OffsetCommitted, commit_ms: int) -> bytes:
    """Pack a committed offset for storage: a fifth of the size of an object."""
    head = _HEAD.pack(event.offset, event.leader_epoch, commit_ms, event.retention_ms)
    return head + event.metadata.encode()


def unpack(packed: bytes) -> GroupOffset:
    """Unpack a committed offset."""
    offset, leader_epoch, commit_ms, retention_ms = _HEAD.unpack_from(packed)
    metadata = packed[_HEAD.size :].decode()
    return GroupOffset(offset, leader_epoch, commit_ms, retention_ms, metadata)


def unpack_offset(packed: bytes) -> int:
    """Unpack only the offset."""
    offset: int = _HEAD.unpack_from(packed)[0]
    return offset


def unpack_times(packed: bytes) -> tuple[int, int]:
    """Unpack the commit time and the requested retention."""
    _, _, commit_ms, retention_ms = _HEAD.unpack_from(packed)
    return commit_ms, retention_ms


class Group:
    """One group."""

    __slots__ = (
        "body", "changes", "coordinator", "epoch", "id", "kind", "offsets", "persisted_ms",
        "staged", "version",
    )  # fmt: skip

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.coordinator = 0
        """The incarnation that holds the claim."""
        self.epoch = 0
        self.version = 0
        self.kind = ""
        """The protocol of the body; empty while there is none."""
        self.body = b""
        self.changes: list[bytes] = []
        """The changes since the body."""
        self.staged = b""
        """Parts of the next body."""
        self.persisted_ms = -1
        """When the body was written, by its coordinator's clock."""
        self.offsets: dict[bytes, dict[int, bytes]] = {}
        """Packed offsets, by topic id and partition."""

    def is_led_by(self, incarnation: int, epoch: int) -> bool:
        """Whether an incarnation holds the claim in this epoch."""
        return self.coordinator == incarnation and self.epoch == epoch

    def offset(self, topic_id: bytes, partition: int) -> GroupOffset | None:
        """Return the offset committed for a partition; None if there is none."""
        packed = self.offsets.get(topic_id, {}).get(partition)
        return None if packed is None else unpack(packed)

    def each_offset(self) -> Iterator[tuple[bytes, int, GroupOffset]]:
        """Return all offsets, each with its topic id and partition."""
        for topic_id, partitions in self.offsets.items():
            for partition, packed in partitions.items():
                yield topic_id, partition, unpack(packed)

    def forget(self, topic_id: bytes, partition: int) -> bool:
        """Remove the offset of a partition; return whether there was one."""
        partitions = self.offsets.get(topic_id)
        if partitions is None or partitions.pop(partition, None) is None:
            return False
        if not partitions:
            del self.offsets[topic_id]
        return True


class Groups:
    """All groups of the cluster."""

    __slots__ = ("by_id",)

    def __init__(self) -> None:
        self.by_id: dict[str, Group] = {}

    def __iter__(self) -> Iterator[Group]:
        return iter(self.by_id.values())

    def claim(self, group_id: str, incarnation: int) -> Group:
        """Assign a group to a coordinator, in a new epoch."""
        group = self.by_id.setdefault(group_id, Group(group_id))
        group.coordinator = incarnation
        group.epoch += 1
        group.staged = b""
        return group

    def find_led(self, group_id: str, incarnation: int, epoch: int) -> Group | None:
        """Return a group, if this incarnation coordinates it in this epoch."""
        group = self.by_id.get(group_id)
        return group if group is not None and group.is_led_by(incarnation, epoch) else None

    def forget_topic(self, topic_id: bytes) -> None:
        """Remove all offsets of a topic: a new topic of the same name starts without any."""
        for group in self:
            group.offsets.pop(topic_id, None)


def coordinator_of(key: str, nodes: Sequence[int]) -> int:
    """Choose the coordinator of a group or transactional id; -1 if no broker is alive."""
    return leader_of(blake2b(key.encode(), digest_size=16).digest(), 0, nodes)
