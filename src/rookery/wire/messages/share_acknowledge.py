"""ShareAcknowledge (key 79): a share group's member reports the results of its records.

Records accepted or rejected are done with; records released may go to any member (KIP-932).

Versions:
    1 is the first that Kafka 4.1 and later accept; 0 was a trial.
    2 adds renewal of the acquisition lock (KIP-1222).
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
    TopicId,
    field,
    i8,
    i32,
)


class ShareAcknowledgeRequest(Message):
    """The outcome of records, partition by partition."""

    group_id: GroupId | None = None
    member_id: MemberId | None
    share_session_epoch: i32  # of a session that ShareFetch has opened; -1 closes it
    is_renew_ack: bool = field(since=2, default=False)
    topics: list[AcknowledgeTopic]


class AcknowledgeTopic(Message):
    """Partitions of one topic."""

    topic_id: TopicId
    partitions: list[AcknowledgePartition]


class AcknowledgePartition(Message):
    """One partition's records."""

    partition_index: PartitionId
    acknowledgement_batches: list[AcknowledgementBatch]


class AcknowledgementBatch(Message):
    """The outcome of a run of records."""

    first_offset: Offset
    last_offset: Offset  # still part of the run
    # One for each record, or one for all: 0 gap, 1 accept, 2 release, 3 reject, 4 renew.
    acknowledge_types: list[i8]


class ShareAcknowledgeResponse(Message):
    """Whether each partition's leader has noted it."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    error_message: str | None = None
    acquisition_lock_timeout_ms: i32 = field(since=2, default=0)
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]


class ShareAcknowledgeTopicResponse(Message):
    """Partitions of one topic, answered."""

    topic_id: TopicId
    partitions: list[PartitionData]


class PartitionData(Message):
    """One partition, answered."""

    partition_index: PartitionId
    error_code: ErrorCode
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch


class LeaderIdAndEpoch(Message):
    """The current leader of the partition, if the wrong broker was asked."""

    leader_id: BrokerId
    leader_epoch: LeaderEpoch


class NodeEndpoint(Message):
    """The address of a leader named above."""

    node_id: BrokerId
    host: Host
    port: Port
    rack: RackId | None = None


def refuse(request: ShareAcknowledgeRequest, code: ErrorCode) -> ShareAcknowledgeResponse:
    """Give the code and its sentence for the whole request."""
    return ShareAcknowledgeResponse(
        error_code=code, error_message=code.sentence, responses=[], node_endpoints=[]
    )


def refuse_items(request: ShareAcknowledgeRequest, code: ErrorCode) -> ShareAcknowledgeResponse:
    """Give the code to every partition."""
    return ShareAcknowledgeResponse(
        error_code=ErrorCode.NONE,
        responses=[_refuse_topic(topic, code) for topic in request.topics],
        node_endpoints=[],
    )


def _refuse_topic(topic: AcknowledgeTopic, code: ErrorCode) -> ShareAcknowledgeTopicResponse:
    return ShareAcknowledgeTopicResponse(
        topic_id=topic.topic_id,
        partitions=[
            PartitionData(
                partition_index=partition.partition_index,
                error_code=code,
                error_message=code.sentence,
                current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
            )
            for partition in topic.partitions
        ],
    )


SHARE_ACKNOWLEDGE = Api(
    key=79,
    request=ShareAcknowledgeRequest,
    response=ShareAcknowledgeResponse,
    versions=range(1, 3),
    flexible=1,
    refuse=refuse,
    items=(
        Items(
            "topics(topic_id).partitions(partition_index)",
            "responses(topic_id).partitions(partition_index)",
        ),
    ),
    refuse_items=refuse_items,
)
