"""Fetch (key 1): consumers read records with it, and followers copy their leader's log.

Versions:
    1 the response has the throttle time.
    2 records may carry timestamps (KIP-32).
    3 a limit for the whole response; the first batch comes whole even if it is larger (KIP-74).
    4 isolation level, last stable offset and aborted transactions (KIP-98); Kafka 4's oldest.
    5 both sides report their log start (KIP-107).
    6 the client knows KAFKA_STORAGE_ERROR (KIP-112).
    7 sessions: name only what has changed since the last fetch (KIP-227).
    8 a throttled client is answered at once and waits by itself (KIP-219).
    9 the reader's leader epoch, so that an old leader or reader is found out (KIP-320).
    10 batches may be packed with zstd (KIP-110).
    11 the reader's rack, and a nearer replica to read from (KIP-392).
    12 flexible; the answer reports where logs diverge, and the leader (KIP-595).
    13 topics by id, no longer by name (KIP-516).
    14 a follower may learn that its offset is now in remote storage only (KIP-405).
    15 a follower's broker epoch (KIP-903).
    16 new leaders come with their addresses (KIP-951).
    17 a follower's log directory (KIP-853).
    18 a follower's high watermark, so that the leader can report a new one at once (KIP-1166).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import (
    ZERO_UUID,
    Api,
    BrokerId,
    ClusterId,
    Host,
    LeaderEpoch,
    Message,
    Offset,
    PartitionId,
    Port,
    ProducerId,
    RackId,
    Records,
    TopicId,
    TopicName,
    Uuid,
    field,
    i8,
    i32,
    i64,
)


class FetchRequest(Message):
    """From which offsets to read, how much, and how long to wait for it."""

    cluster_id: ClusterId | None = field(
        since=12, tag=0, default=None
    )  # set between controllers only
    replica_id: BrokerId = field(until=14, default=-1)  # -1 for a consumer
    replica_state: ReplicaState | None = field(since=15, tag=1, default=None)
    # The answer is held back until min_bytes are there or max_wait_ms have passed.
    max_wait_ms: i32
    min_bytes: i32
    max_bytes: i32 = field(since=3, default=2147483647)
    isolation_level: i8 = field(since=4, default=0)  # 0 read uncommitted, 1 read committed
    session_id: i32 = field(since=7, default=0)
    # 0 opens a session, -1 does without; either closes the one named above.
    session_epoch: i32 = field(since=7, default=-1)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field(since=7, factory=list)
    rack_id: RackId = field(since=11, default="")


class ReplicaState(Message):
    """Which follower is asking, and in which of its lives."""

    replica_id: BrokerId = -1
    replica_epoch: i64 = -1  # the broker epoch, given out when the broker registers


class FetchTopic(Message):
    """The partitions of one topic to read."""

    topic: TopicName = field(until=12, default="")
    topic_id: TopicId = field(since=13, default=ZERO_UUID)
    partitions: list[FetchPartition]


class FetchPartition(Message):
    """Where to continue reading in one partition."""

    partition: PartitionId
    current_leader_epoch: LeaderEpoch = field(since=9, default=-1)  # -1: do not check
    fetch_offset: Offset
    # The epoch of the last record a follower has; the leader compares, and names the divergence.
    last_fetched_epoch: LeaderEpoch = field(since=12, default=-1)
    log_start_offset: Offset = field(since=5, default=-1)  # a follower's own
    partition_max_bytes: i32
    replica_directory_id: Uuid = field(since=17, tag=0, default=ZERO_UUID)
    # A follower's own; with the default it is not notified of a new one.
    high_watermark: Offset = field(since=18, tag=1, default=9223372036854775807)


class ForgottenTopic(Message):
    """Partitions that leave the session."""

    topic: TopicName = field(until=12, default="")
    topic_id: TopicId = field(since=13, default=ZERO_UUID)
    partitions: list[PartitionId]


class FetchResponse(Message):
    """The records found; in a session, only partitions that have news."""

    throttle_time_ms: i32 = field(since=1, default=0)
    error_code: ErrorCode = field(since=7, default=ErrorCode.NONE)
    session_id: i32 = field(since=7, default=0)  # 0: no session was opened
    responses: list[FetchableTopicResponse]
    # The address of each leader that a partition's answer names.
    node_endpoints: list[NodeEndpoint] = field(since=16, tag=0, factory=list)


class FetchableTopicResponse(Message):
    """The data read from one topic."""

    topic: TopicName = field(until=12, default="")
    topic_id: TopicId = field(since=13, default=ZERO_UUID)
    partitions: list[PartitionData]


class PartitionData(Message):
    """The records read from one partition, and the offsets of its log."""

    partition_index: PartitionId
    error_code: ErrorCode
    high_watermark: Offset
    # No transaction below it is still open: a reader of committed records gets no further.
    last_stable_offset: Offset = field(since=4, default=-1)
    log_start_offset: Offset = field(since=5, default=-1)
    diverging_epoch: EpochEndOffset | None = field(since=12, tag=0, default=None)
    current_leader: LeaderIdAndEpoch | None = field(since=12, tag=1, default=None)
    snapshot_id: SnapshotId | None = field(since=12, tag=2, default=None)
    # Only for a reader of committed records, which leaves out what these producers wrote.
    aborted_transactions: list[AbortedTransaction] | None = field(since=4, default=None)
    preferred_read_replica: BrokerId = field(since=11, default=-1)  # -1: continue reading here
    # Whole batches, of which the first may begin below the offset asked for.
    records: Records | None


class EpochEndOffset(Message):
    """The newest point up to which the follower's log may agree with the leader's."""

    epoch: LeaderEpoch = -1
    end_offset: Offset = -1


class LeaderIdAndEpoch(Message):
    """The current leader of the partition."""

    leader_id: BrokerId = -1
    leader_epoch: LeaderEpoch = -1


class SnapshotId(Message):
    """The snapshot to load instead, since the log no longer reaches back to the offset."""

    end_offset: Offset = -1
    epoch: LeaderEpoch = -1


class AbortedTransaction(Message):
    """A producer whose records from this offset up to its abort marker do not count."""

    producer_id: ProducerId
    first_offset: Offset


class NodeEndpoint(Message):
    """Where a leader named in the answer can be reached."""

    node_id: BrokerId
    host: Host
    port: Port
    rack: RackId | None = None


def refuse(request: FetchRequest, code: ErrorCode) -> FetchResponse:
    """Refuse the whole fetch, and also each partition of a topic asked for by name.

    Versions below 7 have no code for the whole, so the partitions must carry it; from version 13,
    which knows topics by id, Kafka leaves them out.
    """
    return FetchResponse(
        error_code=code,
        session_id=request.session_id,
        responses=[
            _refuse_topic(topic, code) for topic in request.topics if topic.topic_id == ZERO_UUID
        ],
    )


def refuse_items(request: FetchRequest, code: ErrorCode) -> FetchResponse:
    """Give the code to every partition, whatever its topic is called by."""
    return FetchResponse(responses=[_refuse_topic(topic, code) for topic in request.topics])


def _refuse_topic(topic: FetchTopic, code: ErrorCode) -> FetchableTopicResponse:
    return FetchableTopicResponse(
        topic=topic.topic,
        topic_id=topic.topic_id,
        partitions=[
            PartitionData(
                partition_index=partition.partition,
                error_code=code,
                high_watermark=-1,
                aborted_transactions=[],
                records=b"",
            )
            for partition in topic.partitions
        ],
    )


FETCH = Api(
    key=1,
    request=FetchRequest,
    response=FetchResponse,
    versions=range(19),
    flexible=12,
    refuse=refuse,
    items=(
        Items(
            "topics(topic | topic_id).partitions(partition)",
            "responses(topic | topic_id).partitions(partition_index)",
        ),
        Items("forgotten_topics_data(topic | topic_id).partitions", None),
    ),
    refuse_items=refuse_items,
)
