"""Groups with their offsets in a state's image."""

from __future__ import annotations

from rookery.cluster.state.groups import Group
from rookery.wire.message import GroupId, Message, PartitionId, TopicId, field, i32, i64


class GroupImage(Message):
    """A group with its coordinator, its members' state and its offsets."""

    group_id: GroupId
    coordinator: i64
    epoch: i32
    version: i64
    kind: str
    body: bytes
    staged: bytes
    persisted_ms: i64
    offsets: list[OffsetImage]
    changes: list[bytes] = field(tag=0, factory=list)


class OffsetImage(Message):
    """A committed offset, as `state.groups` packs it."""

    topic_id: TopicId
    partition: PartitionId
    packed: bytes


def group_image(group: Group) -> GroupImage:
    """Write a group."""
    return GroupImage(
        group_id=group.id,
        coordinator=group.coordinator,
        epoch=group.epoch,
        version=group.version,
        kind=group.kind,
        body=group.body,
        staged=group.staged,
        persisted_ms=group.persisted_ms,
        offsets=[
            OffsetImage(topic_id=topic_id, partition=partition, packed=packed)
            for topic_id, partitions in group.offsets.items()
            for partition, packed in partitions.items()
        ],
        changes=list(group.changes),
    )


def read_group(image: GroupImage) -> Group:
    """Restore a group from its image."""
    group = Group(image.group_id)
    group.coordinator = image.coordinator
    group.epoch = image.epoch
    group.version = image.version
    group.kind = image.kind
    group.body = image.body
    group.staged = image.staged
    group.persisted_ms = image.persisted_ms
    group.changes = image.changes
    for offset in image.offsets:
        group.offsets.setdefault(offset.topic_id, {})[offset.partition] = offset.packed
    return group
