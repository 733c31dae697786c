"""AlterPartition (key 56): a leader asks the controller to change the in-sync replicas (KIP-497).

Each change names the partition epoch that it starts from, so that a leader with an old view cannot
overwrite a newer one.

Versions:
    2: identifies topics by their ids (KIP-841); 0 and 1, which used names, are gone.
    3: adds the broker epoch of each replica, to keep one that has just restarted out (KIP-903).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import (
    Api,
    BrokerId,
    LeaderEpoch,
    Message,
    PartitionId,
    TopicId,
    field,
    i8,
    i32,
    i64,
)


class AlterPartitionRequest(Message):
    """The broker, and what it would change in the partitions that it leads."""

    broker_id: BrokerId
    broker_epoch: i64 = -1  # of this run of the broker, given at its registration
    topics: list[AlterPartitionTopic]


class AlterPartitionTopic(Message):
    """The changes in one topic."""

    topic_id: TopicId
    partitions: list[AlterPartitionPartition]


class AlterPartitionPartition(Message):
    """The new set of in-sync replicas of one partition."""

    partition_index: PartitionId
    leader_epoch: LeaderEpoch
    new_isr: list[BrokerId] = field(until=2, factory=list)
    new_isr_with_epochs: list[BrokerState] = field(since=3, factory=list)
    leader_recovery_state: i8 = 0  # 1: recovering from an unclean election (KIP-704)
    partition_epoch: i32  # the state that the change starts from


class BrokerState(Message):
    """A replica, as of one run of its broker."""

    broker_id: BrokerId
    broker_epoch: i64 = -1  # -1: do not check


class AlterPartitionResponse(Message):
    """The partitions' states after the request, or the error."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    topics: list[AlterPartitionTopicResult]


class AlterPartitionTopicResult(Message):
    """The results in one topic."""

    topic_id: TopicId
    partitions: list[AlterPartitionPartitionResult]


class AlterPartitionPartitionResult(Message):
    """The state of one partition that is now in force."""

    partition_index: PartitionId
    error_code: ErrorCode
    leader_id: BrokerId
    leader_epoch: LeaderEpoch
    isr: list[BrokerId]
    leader_recovery_state: i8 = 0
    partition_epoch: i32


def refuse(request: AlterPartitionRequest, code: ErrorCode) -> AlterPartitionResponse:
    """Answer with the code and no topics."""
    return AlterPartitionResponse(error_code=code, topics=[])


ALTER_PARTITION = Api(
    key=56,
    request=AlterPartitionRequest,
    response=AlterPartitionResponse,
    versions=range(2, 4),
    flexible=2,
    refuse=refuse,
)
