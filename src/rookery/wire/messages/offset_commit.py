"""OffsetCommit (key 8): a group's member stores how far it has read; sent to the coordinator.

Versions:
    0 the group and its offsets alone (kept in ZooKeeper, once).
    1 the committing member, and a time for each partition from which the offset ages.
    2 one retention time for all instead; Kafka 4's oldest.
    3 the response has the throttle time.
    4 a throttled client is answered at once and waits by itself (KIP-219).
    5 no retention time: offsets live as long as their group does (KIP-211).
    6 the leader epoch of the last record read (KIP-320).
    7 static members (KIP-345).
    8 flexible.
    9 members of the new groups send their member epoch (KIP-848).
    10 topics by id, no longer by name (KIP-848).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import (
    ZERO_UUID,
    Api,
    GroupId,
    InstanceId,
    LeaderEpoch,
    MemberId,
    Message,
    Offset,
    PartitionId,
    TopicId,
    TopicName,
    field,
    i32,
    i64,
)


class OffsetCommitRequest(Message):
    """The offsets to store, and the member that commits them."""

    group_id: GroupId
    # -1, with an empty member id: the committer picks its partitions without the group's help.
    generation_id_or_member_epoch: i32 = field(since=1, default=-1)
    member_id: MemberId = field(since=1, default="")
    group_instance_id: InstanceId | None = field(since=7, default=None)
    retention_time_ms: i64 = field(since=2, until=4, default=-1)  # -1: as the broker is set
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitRequestTopic(Message):
    """Offsets in one topic."""

    name: TopicName = field(until=9, default="")
    topic_id: TopicId = field(since=10, default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequestPartition(Message):
    """The next offset to read in one partition."""

    partition_index: PartitionId
    committed_offset: Offset
    committed_leader_epoch: LeaderEpoch = field(since=6, default=-1)
    commit_timestamp: i64 = field(since=1, until=1, default=-1)  # ms; -1: when it arrives
    committed_metadata: str | None  # the committer's own note, given back with the offset


class OffsetCommitResponse(Message):
    """Which offsets were stored."""

    throttle_time_ms: i32 = field(since=3, default=0)
    topics: list[OffsetCommitResponseTopic]


class OffsetCommitResponseTopic(Message):
    """The results for one topic's offsets."""

    name: TopicName = field(until=9, default="")
    topic_id: TopicId = field(since=10, default=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition]


class OffsetCommitResponsePartition(Message):
    """Whether one partition's offset was stored."""

    partition_index: PartitionId
    error_code: ErrorCode


def refuse(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """Give the code to every partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


OFFSET_COMMIT = Api(
    key=8,
    request=OffsetCommitRequest,
    response=OffsetCommitResponse,
    versions=range(11),
    flexible=8,
    refuse=refuse,
    items=(
        Items(
            "topics(name | topic_id).partitions(partition_index)",
            "topics(name | topic_id).partitions(partition_index)",
        ),
    ),
)
