"""Fetch: batches of many partitions, now or as soon as there are any."""

from __future__ import annotations

import asyncio

from rookery.broker.call import Call
from rookery.broker.registry import handles
from rookery.cluster.state.partition import Partition
from rookery.cluster.state.topics import Topic
from rookery.errors import ErrorCode
from rookery.wire.message import Parts
from rookery.wire.messages.fetch import (
    FETCH,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)


@handles(FETCH, versions=range(4, 19))
async def fetch(call: Call, request: FetchRequest) -> FetchResponse:
    """Answer with what is there; wait if that is too little and the client allows it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.max_wait_ms / 1000
    while True:
        response, size = await _collect(call, request)
        left = deadline - loop.time()
        if size >= request.min_bytes or left <= 0:
            return response
        await _wait(call, request, left)


async def _wait(call: Call, request: FetchRequest, seconds: float) -> None:
    woken = asyncio.Event()
    keys = [
        (topic.id, part.partition)
        for data in request.topics
        if (topic := _topic(call, data.topic, data.topic_id)) is not None
        for part in data.partitions
    ]
    call.services.waiting.add(keys, woken.set)
    try:
        async with asyncio.timeout(seconds):
            await woken.wait()
    except TimeoutError:
        pass
    finally:
        call.services.waiting.remove(keys, woken.set)


def _topic(call: Call, name: str, topic_id: bytes) -> Topic | None:
    topics = call.state.topics
    return topics.by_name.get(name) if name else topics.by_id.get(topic_id)


async def _collect(call: Call, request: FetchRequest) -> tuple[FetchResponse, int]:
    left, size = request.max_bytes, 0
    responses = []
    for data in request.topics:
        topic = _topic(call, data.topic, data.topic_id)
        partitions = []
        for part in data.partitions:
            if topic is None or not 0 <= part.partition < len(topic.partitions):
                code = (
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if data.topic
                    else ErrorCode.UNKNOWN_TOPIC_ID
                )
                partitions.append(_empty(part.partition, code))
                size = max(size, request.min_bytes)
                continue
            answer, got = await _read(call, topic, part, left)
            left -= got
            size += got
            partitions.append(answer)
        responses.append(
            FetchableTopicResponse(topic=data.topic, topic_id=data.topic_id, partitions=partitions)
        )
    return FetchResponse(responses=responses), size


def _empty(index: int, code: ErrorCode, partition: Partition | None = None) -> PartitionData:
    end = partition.next_offset if partition else -1
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=end,
        last_stable_offset=end,
        log_start_offset=partition.log_start if partition else -1,
        aborted_transactions=None,
        records=b"",
    )


async def _read(
    call: Call, topic: Topic, part: FetchPartition, left: int
) -> tuple[PartitionData, int]:
    partition = topic.partitions[part.partition]
    if part.fetch_offset > partition.next_offset:
        await call.services.replica.barrier()
    if not partition.log_start <= part.fetch_offset <= partition.next_offset:
        return _empty(part.partition, ErrorCode.OFFSET_OUT_OF_RANGE, partition), 1
    answer = _empty(part.partition, ErrorCode.NONE, partition)
    if part.fetch_offset == partition.next_offset or left <= 0:
        return answer, 0
    key = (topic.id, part.partition)
    limit = min(left, part.partition_max_bytes)
    found = await call.services.reader.read(key, partition, part.fetch_offset, limit)
    answer.records = Parts(found.parts)
    return answer, found.size
