"""DescribeLogDirs: the size of partitions, and the free space.

Brokers share the log's folder. Only the leader of a partition reports it, so that the sum over all
brokers equals the bytes that are stored.
"""

from __future__ import annotations

import asyncio
import shutil

from rookery.broker.call import Call, handles
from rookery.broker.config.configs import log_dir
from rookery.cluster.state.topics import Topic
from rookery.errors import ErrorCode
from rookery.wire.messages.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


@handles(
    DESCRIBE_LOG_DIRS,
    versions=range(1, 6),
    mutates=False,
)
async def describe_log_dirs(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describe the broker's single log folder or store: partition sizes and free space."""
    await call.services.replica.barrier()
    settings = call.services.settings
    folder = log_dir(settings)
    result = DescribeLogDirsResult(
        error_code=ErrorCode.NONE, log_dir=folder, topics=_topics(call, request)
    )
    if settings.store:
        # A store has no size; -1 means "unknown" in Kafka.
        return DescribeLogDirsResponse(results=[result])
    try:
        usage = await asyncio.to_thread(shutil.disk_usage, folder)
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        result.total_bytes, result.usable_bytes = usage.total, usage.free
    return DescribeLogDirsResponse(results=[result])


def _topics(call: Call, request: DescribeLogDirsRequest) -> list[DescribeLogDirsTopic]:
    topics = call.state.topics
    if request.topics is None:
        shown = [_topic(call, topic, None) for topic in topics]
    else:
        shown = [
            _topic(call, topics.by_name[asked.topic], set(asked.partitions))
            for asked in request.topics
            if asked.topic in topics.by_name
        ]
    return [topic for topic in shown if topic.partitions]


def _topic(call: Call, topic: Topic, wanted: set[int] | None) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        name=topic.name,
        partitions=[
            DescribeLogDirsPartition(
                partition_index=partition.index,
                partition_size=partition.size_bytes,
                offset_lag=0,
                is_future_key=False,
            )
            for partition in topic.partitions
            if partition.leader == call.services.node_id
            and (wanted is None or partition.index in wanted)
        ],
    )
