"""The progress of share groups in partitions, in `__share_group_state` (KIP-932).

Small updates follow a snapshot, until the next snapshot takes their place.
"""

from __future__ import annotations

from rookery.wire.message import (
    GroupId,
    LeaderEpoch,
    Message,
    Offset,
    PartitionId,
    TopicId,
    field,
    i8,
    i16,
    i32,
    i64,
)


class ShareSnapshotKey(Message, key=0, versions=range(1), flexible=None):
    """A partition that a group reads."""

    group_id: GroupId
    topic_id: TopicId
    partition: PartitionId


class ShareSnapshotValue(Message, key=0, versions=range(1), flexible=0):
    """The whole state: everything below the start offset is done with."""

    snapshot_epoch: i32
    state_epoch: i32
    leader_epoch: LeaderEpoch
    start_offset: Offset
    delivery_complete_count: i32 = field(tag=0, default=-1)  # -1: unknown
    create_timestamp: i64
    write_timestamp: i64
    state_batches: list[StateBatch]


class ShareUpdateKey(Message, key=1, versions=range(1), flexible=None):
    """A partition that a group reads."""

    group_id: GroupId
    topic_id: TopicId
    partition: PartitionId


class ShareUpdateValue(Message, key=1, versions=range(1), flexible=0):
    """The changes since the snapshot of this epoch."""

    snapshot_epoch: i32
    leader_epoch: LeaderEpoch
    start_offset: Offset  # -1: unchanged
    delivery_complete_count: i32 = field(tag=0, default=-1)  # -1: unknown
    state_batches: list[StateBatch]


class StateBatch(Message):
    """The state that a run of records shares."""

    first_offset: Offset
    last_offset: Offset  # still part of the run
    delivery_state: i8  # 0 available, 2 acknowledged, 4 archived
    delivery_count: i16
