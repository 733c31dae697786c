"""Produce: check batches, have them written and committed, answer with their offsets.

Acks of 1 and of all mean the same here: durable and committed. With acks 0 there is no answer.
"""

from __future__ import annotations

import asyncio
from typing import Final

from rookery.broker.call import Call
from rookery.broker.dispatch import code_of
from rookery.broker.registry import handles
from rookery.cluster.state.state import Appended
from rookery.cluster.state.topics import Topic
from rookery.errors import ApiError, ErrorCode
from rookery.log.writer import Batch
from rookery.records import batch as batches
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

_ACKS: Final = frozenset((-1, 0, 1))
Future = asyncio.Future[ProduceResponse | None]


@handles(PRODUCE, versions=range(3, 14))
def produce(call: Call, request: ProduceRequest) -> Future | ProduceResponse | None:
    """Write what can be written, and answer for every partition."""
    if request.acks not in _ACKS:
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}")
    batch_list: list[Batch] = []
    response = ProduceResponse(
        responses=[_check_topic(call, topic, batch_list) for topic in request.topic_data]
    )
    if not batch_list:
        return response if request.acks else None
    written = call.services.writer.append(batch_list)
    answer: Future = written.get_loop().create_future()

    def settle(done: asyncio.Future[list[Appended]]) -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if answer.done():
            return
        if error is not None:
            _fail(response, code_of(error))
        else:
            _fill(call, response, batch_list, done.result())
        answer.set_result(response if request.acks else None)

    written.add_done_callback(settle)
    return answer


def _check_topic(
    call: Call, data: TopicProduceData, batch_list: list[Batch]
) -> TopicProduceResponse:
    topics = call.state.topics
    topic = topics.by_name.get(data.name) if data.name else topics.by_id.get(data.topic_id)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if data.name else ErrorCode.UNKNOWN_TOPIC_ID
    return TopicProduceResponse(
        name=data.name,
        topic_id=data.topic_id,
        partition_responses=[
            _check(call, topic, part, batch_list) if topic else _refused(part.index, unknown)
            for part in data.partition_data
        ],
    )


def _check(
    call: Call, topic: Topic, part: PartitionProduceData, batch_list: list[Batch]
) -> PartitionProduceResponse:
    """Check a partition's batches; the answer is completed when they are committed."""
    if not 0 <= part.index < len(topic.partitions):
        return _refused(part.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    records = part.records
    if not isinstance(records, memoryview):
        return _refused(part.index, ErrorCode.INVALID_RECORD)
    try:
        headers = batches.validate(records)
    except ApiError as error:
        return _refused(part.index, error.code, error.text)
    for header in headers:
        view = records[header.position : header.end]
        batch_list.append(Batch(topic.id, part.index, view, header._replace(position=0)))
    return PartitionProduceResponse(
        index=part.index, error_code=ErrorCode.NONE, base_offset=-len(headers)
    )


def _refused(index: int, code: ErrorCode, text: str | None = None) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=code, base_offset=-1, error_message=text
    )


def _fill(
    call: Call, response: ProduceResponse, batch_list: list[Batch], outcomes: list[Appended]
) -> None:
    results = iter(zip(batch_list, outcomes, strict=True))
    for topic in response.responses:
        for part in topic.partition_responses:
            if part.error_code is not ErrorCode.NONE:
                continue
            count, part.base_offset = -part.base_offset, -1
            own = [next(results) for _ in range(count)]
            batch, first = own[0]
            failed = next((o for _, o in own if o.error is not ErrorCode.NONE), None)
            if failed is not None:
                part.error_code = failed.error
                continue
            part.base_offset = first.base_offset
            part.log_append_time_ms = first.append_time_ms
            partition = call.state.topics.partition(batch.topic_id, batch.partition)
            part.log_start_offset = partition.log_start if partition else -1


def _fail(response: ProduceResponse, code: ErrorCode) -> None:
    for topic in response.responses:
        for part in topic.partition_responses:
            if part.error_code is ErrorCode.NONE:
                part.error_code, part.base_offset = code, -1
