"""WriteTxnMarkers (key 27): a coordinator has the end of transactions written into partitions.

It goes from broker to broker: each leader appends a control batch, commit or abort, that shows
readers the outcome of the transaction (KIP-98).

Versions:
    1 flexible; Kafka 4's oldest.
    2 by which rules the transaction was run, so that a stale marker is found out (KIP-1228).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import (
    Api,
    Message,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    TopicName,
    field,
    i8,
    i32,
)


class WriteTxnMarkersRequest(Message):
    """The markers to write."""

    markers: list[WritableTxnMarker]


class WritableTxnMarker(Message):
    """The end of one transaction, and the partitions it wrote to."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    transaction_result: bool  # True: committed
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: i32  # a marker of an older coordinator is refused
    transaction_version: i8 = field(since=2, default=0)  # 2: a new epoch for each transaction


class WritableTxnMarkerTopic(Message):
    """Partitions of one topic."""

    name: TopicName
    partition_indexes: list[PartitionId]


class WriteTxnMarkersResponse(Message):
    """Which markers were written."""

    markers: list[WritableTxnMarkerResult]


class WritableTxnMarkerResult(Message):
    """The results for one transaction's markers."""

    producer_id: ProducerId
    topics: list[WritableTxnMarkerTopicResult]


class WritableTxnMarkerTopicResult(Message):
    """The results for its markers in one topic."""

    name: TopicName
    partitions: list[WritableTxnMarkerPartitionResult]


class WritableTxnMarkerPartitionResult(Message):
    """Whether one partition has its marker."""

    partition_index: PartitionId
    error_code: ErrorCode


def refuse(request: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    """Give the code to every partition of every marker."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[_refuse_topic(topic, code) for topic in marker.topics],
            )
            for marker in request.markers
        ]
    )


def _refuse_topic(topic: WritableTxnMarkerTopic, code: ErrorCode) -> WritableTxnMarkerTopicResult:
    return WritableTxnMarkerTopicResult(
        name=topic.name,
        partitions=[
            WritableTxnMarkerPartitionResult(partition_index=partition, error_code=code)
            for partition in topic.partition_indexes
        ],
    )


WRITE_TXN_MARKERS = Api(
    key=27,
    request=WriteTxnMarkersRequest,
    response=WriteTxnMarkersResponse,
    versions=range(3),
    flexible=1,
    refuse=refuse,
    items=(
        Items(
            "markers(producer_id).topics(name).partition_indexes",
            "markers(producer_id).topics(name).partitions(partition_index)",
        ),
    ),
)
