"""ShareGroupHeartbeat (key 76): a consumer joins, stays in and leaves a share group (KIP-932).

Several members of a share group may read the same partition, each record going to one of them, so
an assignment need not be handed over from one member to another.

Versions:
    1 is the first that Kafka 4.1 and later accept; 0 was a trial.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import (
    Api,
    GroupId,
    MemberId,
    Message,
    PartitionId,
    RackId,
    TopicId,
    TopicName,
    i32,
)


class ShareGroupHeartbeatRequest(Message):
    """A member's sign of life, with whatever has changed."""

    group_id: GroupId
    member_id: MemberId  # drawn by the member itself
    member_epoch: i32  # 0 joins, -1 leaves
    rack_id: RackId | None = None
    subscribed_topic_names: list[TopicName] | None = None  # null: unchanged


class ShareGroupHeartbeatResponse(Message):
    """The member's epoch and its assignment."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    error_message: str | None = None
    member_id: MemberId | None = None
    member_epoch: i32
    heartbeat_interval_ms: i32
    assignment: Assignment | None = None  # null: unchanged


class Assignment(Message):
    """All partitions that the member reads from now on."""

    topic_partitions: list[TopicPartitions]


class TopicPartitions(Message):
    """Partitions of one topic."""

    topic_id: TopicId
    partitions: list[PartitionId]


def refuse(request: ShareGroupHeartbeatRequest, code: ErrorCode) -> ShareGroupHeartbeatResponse:
    """Give the code and its sentence, and no assignment."""
    return ShareGroupHeartbeatResponse(
        error_code=code, error_message=code.sentence, member_epoch=0, heartbeat_interval_ms=0
    )


SHARE_GROUP_HEARTBEAT = Api(
    key=76,
    request=ShareGroupHeartbeatRequest,
    response=ShareGroupHeartbeatResponse,
    versions=range(1, 2),
    flexible=1,
    refuse=refuse,
)
