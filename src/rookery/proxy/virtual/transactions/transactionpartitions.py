"""Adds the physical partitions of virtual ones to a transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rookery.errors import ApiError, ErrorCode
from rookery.proxy.virtual.topicbook import TopicBook, TopicKind
from rookery.proxy.virtual.virtualfetch import refusal_of
from rookery.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)

_Codes = dict[tuple[str, int], ErrorCode]


async def add_partitions(
    book: TopicBook,
    request: AddPartitionsToTxnRequest,
    ask: Callable[[AddPartitionsToTxnRequest], Awaitable[AddPartitionsToTxnResponse]],
) -> AddPartitionsToTxnResponse:
    """Answer a request of version 3 or below; like Kafka, add all partitions or none.

    Args:
        book: the topics with virtual partitions.
        request: of the client.
        ask: sends a request to the coordinator.
    """
    topics = request.v3_and_below_topics
    places: dict[tuple[str, int], tuple[str, int]] = {}
    refused: _Codes = {}
    for topic in topics:
        for partition in topic.partitions:
            key = topic.name, partition
            try:
                places[key] = topic.name, _find_physical(book, topic.name, partition)
            except ApiError as error:
                refused[key] = error.code
    if refused:
        return _answer(topics, dict.fromkeys(places, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused)
    physical: dict[str, dict[int, None]] = {topic.name: {} for topic in topics}
    for name, partition in places.values():
        physical[name][partition] = None
    response = await ask(
        request.replace(
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=list(partitions))
                for name, partitions in physical.items()
            ]
        )
    )
    results = {
        (topic.name, row.partition_index): row.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    }
    unknown = ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer = _answer(topics, {key: results.get(place, unknown) for key, place in places.items()})
    answer.throttle_time_ms = response.throttle_time_ms
    return answer


def _find_physical(book: TopicBook, topic: str, partition: int) -> int:
    """Return the partition of the upstream.

    Raises:
        ApiError: it is refused, with Kafka's code.
    """
    entry = book.find(topic)
    if entry is None:
        return partition
    if entry.kind is not TopicKind.VIRTUAL:
        raise ApiError(refusal_of(entry))
    return entry.rule.remapper.virtual_to_physical(partition).physical_partition


def _answer(topics: list[AddPartitionsToTxnTopic], codes: _Codes) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=partition,
                        partition_error_code=codes[topic.name, partition],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in topics
        ]
    )
