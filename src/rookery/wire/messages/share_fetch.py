"""ShareFetch (key 78): a share group's member takes records to work on, and settles old ones.

The leader lends records for a while (the acquisition lock) and counts how often it has lent them.
What the member has done with earlier ones may ride along, else ShareAcknowledge carries it. Like
Fetch, it works in sessions: only what has changed is named (KIP-932).

Versions:
    1 is the first that Kafka 4.1 and later accept, and counts records as well as bytes.
    2 adds the acquire mode (KIP-1206) and renewal of the lock (KIP-1222).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import (
    Api,
    BrokerId,
    GroupId,
    Host,
    LeaderEpoch,
    MemberId,
    Message,
    Offset,
    PartitionId,
    Port,
    RackId,
    Records,
    TopicId,
    field,
    i8,
    i16,
    i32,
)


class ShareFetchRequest(Message):
    """The partitions to fetch, the limits, and acknowledgements of earlier records."""

    group_id: GroupId | None = None
    member_id: MemberId | None
    share_session_epoch: i32  # 0 opens a session, -1 closes it
    max_wait_ms: i32
    min_bytes: i32
    max_bytes: i32 = 2147483647
    max_records: i32
    batch_size: i32
    share_acquire_mode: i8 = field(since=2, default=0)  # 0 whole batches, 1 max_records is strict
    is_renew_ack: bool = field(since=2, default=False)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]


class FetchTopic(Message):
    """Partitions of one topic to fetch or to settle."""

    topic_id: TopicId
    partitions: list[FetchPartition]


class FetchPartition(Message):
    """One partition to fetch, with the outcome of records taken before."""

    partition_index: PartitionId
    acknowledgement_batches: list[AcknowledgementBatch]


class AcknowledgementBatch(Message):
    """The outcome of a run of records."""

    first_offset: Offset
    last_offset: Offset  # still part of the run
    # One for each record, or one for all: 0 gap, 1 accept, 2 release, 3 reject, 4 renew.
    acknowledge_types: list[i8]


class ForgottenTopic(Message):
    """Partitions to take out of the session."""

    topic_id: TopicId
    partitions: list[PartitionId]


class ShareFetchResponse(Message):
    """The records lent, and for how long."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    error_message: str | None = None
    acquisition_lock_timeout_ms: i32
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]


class ShareFetchableTopicResponse(Message):
    """Partitions of one topic, answered."""

    topic_id: TopicId
    partitions: list[PartitionData]


class PartitionData(Message):
    """One partition's records; only those in `acquired_records` are lent to this member."""

    partition_index: PartitionId
    error_code: ErrorCode
    error_message: str | None = None
    acknowledge_error_code: ErrorCode
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch
    records: Records
    acquired_records: list[AcquiredRecords]


class LeaderIdAndEpoch(Message):
    """The current leader of the partition, if the wrong broker was asked."""

    leader_id: BrokerId
    leader_epoch: LeaderEpoch


class AcquiredRecords(Message):
    """A run of records lent to this member."""

    first_offset: Offset
    last_offset: Offset  # still part of the run
    delivery_count: i16  # how often they have been lent, this time included


class NodeEndpoint(Message):
    """The address of a leader named above."""

    node_id: BrokerId
    host: Host
    port: Port
    rack: RackId | None = None


def refuse(request: ShareFetchRequest, code: ErrorCode) -> ShareFetchResponse:
    """Give the code and its sentence for the whole request, and lend nothing."""
    return ShareFetchResponse(
        error_code=code,
        error_message=code.sentence,
        acquisition_lock_timeout_ms=0,
        responses=[],
        node_endpoints=[],
    )


def refuse_items(request: ShareFetchRequest, code: ErrorCode) -> ShareFetchResponse:
    """Give the code to every partition, for its fetch and for its acknowledgements."""
    return ShareFetchResponse(
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=0,
        responses=[_refuse_topic(topic, code) for topic in request.topics],
        node_endpoints=[],
    )


def _refuse_topic(topic: FetchTopic, code: ErrorCode) -> ShareFetchableTopicResponse:
    return ShareFetchableTopicResponse(
        topic_id=topic.topic_id,
        partitions=[
            PartitionData(
                partition_index=partition.partition_index,
                error_code=code,
                error_message=code.sentence,
                acknowledge_error_code=code,
                acknowledge_error_message=code.sentence,
                current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
                records=b"",
                acquired_records=[],
            )
            for partition in topic.partitions
        ],
    )


SHARE_FETCH = Api(
    key=78,
    request=ShareFetchRequest,
    response=ShareFetchResponse,
    versions=range(1, 3),
    flexible=1,
    refuse=refuse,
    items=(
        Items(
            "topics(topic_id).partitions(partition_index)",
            "responses(topic_id).partitions(partition_index)",
        ),
        Items("forgotten_topics_data(topic_id).partitions", None),
    ),
    refuse_items=refuse_items,
)
