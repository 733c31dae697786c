"""OffsetFetch (key 9): asks the coordinator where groups have stopped reading.

Versions:
    0 offsets kept in ZooKeeper, once.
    1 offsets kept by the coordinator; Kafka 4's oldest.
    2 null instead of topics asks for all; a code for the whole answer (KIP-88).
    3 the response has the throttle time.
    4 a throttled client is answered at once and waits by itself (KIP-219).
    5 leader epochs (KIP-320).
    6 flexible.
    7 the client may insist on offsets that no open transaction can change (KIP-447).
    8 several groups in one request (KIP-709).
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
    LeaderEpoch,
    MemberId,
    Message,
    Offset,
    PartitionId,
    TopicId,
    TopicName,
    field,
    i32,
)


class OffsetFetchRequest(Message):
    """The groups whose offsets to return: one up to version 7, any number from version 8."""

    group_id: GroupId = field(until=7, default="")
    # Null asks for every partition that the group has an offset for.
    topics: list[OffsetFetchRequestTopic] | None = field(until=7, nullable=2, default=None)
    groups: list[OffsetFetchRequestGroup] = field(since=8, factory=list)
    # Answer UNSTABLE_OFFSET_COMMIT where an open transaction holds an offset.
    require_stable: bool = field(since=7, default=False)


class OffsetFetchRequestGroup(Message):
    """One group, and the topics to look at."""

    group_id: GroupId
    member_id: MemberId | None = field(since=9, default=None)
    member_epoch: i32 = field(since=9, default=-1)
    topics: list[OffsetFetchRequestTopic] | None  # null: all


class OffsetFetchRequestTopic(Message):
    """The partitions to look at in one topic."""

    name: TopicName = field(until=9, default="")
    topic_id: TopicId = field(since=10, default=ZERO_UUID)
    partition_indexes: list[PartitionId]


class OffsetFetchResponse(Message):
    """The offsets stored: of one group up to version 7, of each group from version 8."""

    throttle_time_ms: i32 = field(since=3, default=0)
    topics: list[OffsetFetchResponseTopic] = field(until=7, factory=list)
    error_code: ErrorCode = field(since=2, until=7, default=ErrorCode.NONE)
    groups: list[OffsetFetchResponseGroup] = field(since=8, factory=list)


class OffsetFetchResponseGroup(Message):
    """One group's offsets."""

    group_id: GroupId
    topics: list[OffsetFetchResponseTopic]
    error_code: ErrorCode = ErrorCode.NONE


class OffsetFetchResponseTopic(Message):
    """Offsets in one topic."""

    name: TopicName = field(until=9, default="")
    topic_id: TopicId = field(since=10, default=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartition]


class OffsetFetchResponsePartition(Message):
    """The next offset to read in one partition."""

    partition_index: PartitionId
    committed_offset: Offset  # -1: nothing is stored, which is not an error
    committed_leader_epoch: LeaderEpoch = field(since=5, default=-1)
    metadata: str | None  # the committer's own note
    error_code: ErrorCode


def refuse(request: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
    """Give the code to each group; up to version 7, to the one group and to its partitions.

    Versions 0 and 1 have no code for the group, so the partitions must carry it.
    """
    if request.groups:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=code)
                for group in request.groups
            ]
        )
    topics = [_refuse_topic(topic, code) for topic in request.topics or []]
    return OffsetFetchResponse(topics=topics, error_code=code)


def _refuse_topic(topic: OffsetFetchRequestTopic, code: ErrorCode) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=partition, committed_offset=-1, metadata="", error_code=code
            )
            for partition in topic.partition_indexes
        ],
    )


def refuse_items(request: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
    """Give the code to every partition, and to a group only if it asks for all of them."""
    return OffsetFetchResponse(
        topics=[_refuse_topic(topic, code) for topic in request.topics or []],
        groups=[
            OffsetFetchResponseGroup(
                group_id=group.group_id,
                topics=[_refuse_topic(topic, code) for topic in group.topics or []],
                error_code=code if group.topics is None else ErrorCode.NONE,
            )
            for group in request.groups
        ],
    )


OFFSET_FETCH = Api(
    key=9,
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
    versions=range(11),
    flexible=6,
    refuse=refuse,
    items=(
        Items("topics(name).partition_indexes", "topics(name).partitions(partition_index)"),
        Items(
            "groups(group_id).topics(name | topic_id).partition_indexes",
            "groups(group_id).topics(name | topic_id).partitions(partition_index)",
        ),
    ),
    refuse_items=refuse_items,
)
