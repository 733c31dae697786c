"""DeleteRecords (key 21): drops the records before an offset, by moving the log's start (KIP-107).

Versions:
    1 a throttled client is answered at once and waits by itself (KIP-219).
    2 flexible.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, Message, Offset, PartitionId, TopicName, i32


class DeleteRecordsRequest(Message):
    """The new start offsets of logs; sent to the partitions' leader."""

    topics: list[DeleteRecordsTopic]
    timeout_ms: i32  # how long to wait until all replicas have done it


class DeleteRecordsTopic(Message):
    """The partitions to shorten in one topic."""

    name: TopicName
    partitions: list[DeleteRecordsPartition]


class DeleteRecordsPartition(Message):
    """The new start offset of one partition."""

    partition_index: PartitionId
    offset: Offset  # the first to keep; -1 keeps none below the high watermark


class DeleteRecordsResponse(Message):
    """From where on the logs now begin."""

    throttle_time_ms: i32 = 0
    topics: list[DeleteRecordsTopicResult]


class DeleteRecordsTopicResult(Message):
    """The results for one topic's partitions."""

    name: TopicName
    partitions: list[DeleteRecordsPartitionResult]


class DeleteRecordsPartitionResult(Message):
    """Where one partition begins, on every live replica."""

    partition_index: PartitionId
    low_watermark: Offset  # -1 if there is an error
    error_code: ErrorCode


def refuse(request: DeleteRecordsRequest, code: ErrorCode) -> DeleteRecordsResponse:
    """Give the code to every partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=partition.partition_index,
                        low_watermark=-1,
                        error_code=code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


DELETE_RECORDS = Api(
    key=21,
    request=DeleteRecordsRequest,
    response=DeleteRecordsResponse,
    versions=range(3),
    flexible=2,
    refuse=refuse,
    items=(
        Items(
            "topics(name).partitions(partition_index)", "topics(name).partitions(partition_index)"
        ),
    ),
)
