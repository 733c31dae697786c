"""DescribeLogDirs (key 35): how much room each partition takes on each disk of one broker.

Versions:
    1: the broker answers at once and the client does the waiting, when throttled (KIP-219).
    2: flexible.
    3: adds an error for the whole answer; before, an empty answer means "not allowed".
    4: adds the size of each disk and what is free on it (KIP-827).
    5: adds whether a directory takes no new replicas (KIP-1066).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, Message, PartitionId, TopicName, field, i32, i64


class DescribeLogDirsRequest(Message):
    """The partitions to look at."""

    topics: list[DescribableLogDirTopic] | None = None  # null: all topics


class DescribableLogDirTopic(Message):
    """The partitions of one topic to look at."""

    topic: TopicName
    partitions: list[PartitionId]


class DescribeLogDirsResponse(Message):
    """The log directories of the broker that was asked."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode = field(since=3, default=ErrorCode.NONE)
    results: list[DescribeLogDirsResult]


class DescribeLogDirsResult(Message):
    """One directory and the replicas in it."""

    error_code: ErrorCode  # KAFKA_STORAGE_ERROR: the disk is out of order
    log_dir: str
    topics: list[DescribeLogDirsTopic]
    total_bytes: i64 = field(since=4, default=-1)  # -1: unknown
    usable_bytes: i64 = field(since=4, default=-1)
    is_cordoned: bool = field(since=5, default=False)


class DescribeLogDirsTopic(Message):
    """The partitions of one topic in the directory."""

    name: TopicName
    partitions: list[DescribeLogDirsPartition]


class DescribeLogDirsPartition(Message):
    """One replica."""

    partition_index: PartitionId
    partition_size: i64  # bytes
    # Offsets that it lags behind the high watermark, or a future replica the current one.
    offset_lag: i64
    is_future_key: bool  # the copy of a move that is in progress (AlterReplicaLogDirs)


def refuse(request: DescribeLogDirsRequest, code: ErrorCode) -> DescribeLogDirsResponse:
    """Answer with the code and no directories; below version 3 only the empty list shows it."""
    return DescribeLogDirsResponse(error_code=code, results=[])


def refuse_items(request: DescribeLogDirsRequest, code: ErrorCode) -> DescribeLogDirsResponse:
    """Answer with no directories: only the whole response has an error code."""
    return DescribeLogDirsResponse(results=[])


DESCRIBE_LOG_DIRS = Api(
    key=35,
    request=DescribeLogDirsRequest,
    response=DescribeLogDirsResponse,
    versions=range(6),
    flexible=2,
    refuse=refuse,
    items=(
        Items(
            "topics(topic).partitions",
            "results(log_dir).topics(name).partitions(partition_index)",
            has_codes=False,
        ),
    ),
    refuse_items=refuse_items,
)
