"""ConsumerGroupHeartbeat (key 68): a consumer joins, stays in and leaves a group (KIP-848).

One call does what JoinGroup, SyncGroup, Heartbeat and LeaveGroup do in the classic protocol: the
member sends what it subscribes to and owns, the coordinator answers with its assignment. Fields
that have not changed since the last heartbeat may be null.

Versions:
    1 subscribes by a regular expression that the broker resolves; the member makes its own id.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import (
    Api,
    GroupId,
    InstanceId,
    MemberId,
    Message,
    PartitionId,
    RackId,
    TopicId,
    TopicName,
    TopicRegex,
    field,
    i32,
)


class ConsumerGroupHeartbeatRequest(Message):
    """A member's sign of life, with whatever has changed."""

    group_id: GroupId
    member_id: MemberId
    member_epoch: i32  # 0 joins, -1 leaves, -2 leaves for a while (static members)
    instance_id: InstanceId | None = None
    rack_id: RackId | None = None
    rebalance_timeout_ms: i32 = -1  # -1: unchanged
    subscribed_topic_names: list[TopicName] | None = None
    subscribed_topic_regex: TopicRegex | None = field(since=1, default=None)
    server_assignor: str | None = None
    topic_partitions: list[TopicPartitions] | None = None  # what the member owns


class TopicPartitions(Message):
    """Partitions of one topic."""

    topic_id: TopicId
    partitions: list[PartitionId]


class ConsumerGroupHeartbeatResponse(Message):
    """The member's epoch and its assignment."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    error_message: str | None = None
    member_id: MemberId | None = None
    member_epoch: i32
    heartbeat_interval_ms: i32
    assignment: Assignment | None = None  # null: unchanged


class Assignment(Message):
    """Everything that the member may own from now on."""

    topic_partitions: list[TopicPartitions]


def refuse(
    request: ConsumerGroupHeartbeatRequest, code: ErrorCode
) -> ConsumerGroupHeartbeatResponse:
    """Give the code and its sentence, and no assignment."""
    return ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=code.sentence, member_epoch=0, heartbeat_interval_ms=0
    )


CONSUMER_GROUP_HEARTBEAT = Api(
    key=68,
    request=ConsumerGroupHeartbeatRequest,
    response=ConsumerGroupHeartbeatResponse,
    versions=range(2),
    flexible=0,
    refuse=refuse,
)
