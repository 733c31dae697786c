"""Quotas as clients see them: reported pauses, refused changes, muted and closed connections."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from rookery.errors import ErrorCode, Unavailable
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.wait import wait_until
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from rookery.wire.messages.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from rookery.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequest,
)
from rookery.wire.messages.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from rookery.wire.messages.produce import PRODUCE
from tests.broker.raw import batch, create, produce_request, raw
from tests.broker.test_client_quotas import Parts, alter

BURST_SECONDS = 10
ANONYMOUS: Parts = [("user", "ANONYMOUS")]


def limit(broker: ServedBroker, key: str, value: float | None, entity: Parts = ANONYMOUS) -> None:
    [(code, text)] = alter(broker.bootstrap, (entity, [(key, value)]))
    assert code is ErrorCode.NONE, text


def create_request(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                assignments=[],
                configs=[],
            )
            for name in names
        ],
        timeout_ms=20_000,
    )


def test_producer_learns_of_its_pauses(broker: ServedBroker) -> None:
    rate, size = 50_000, 50_000
    limit(broker, "producer_byte_rate", rate, [("client-id", "app")])
    pauses: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "app",
            "compression.type": "none",
            "throttle_cb": lambda event: pauses.append(event.throttle_time),
        }
    )
    count = BURST_SECONDS + 2
    for _ in range(count):
        producer.produce("quota", bytes(size), partition=0)
        producer.flush(20)

    # librdkafka reports the pauses in seconds, and the end of each as a pause of zero.
    wait_until(lambda: bool(producer.poll(0.01) or any(pauses)))
    used = count * size
    assert sum(pauses) >= (used - BURST_SECONDS * rate) / rate * 0.5


def test_consumer_learns_of_its_pauses(broker: ServedBroker) -> None:
    create(broker, "fetched")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "none"})
    for _ in range(12):
        producer.produce("fetched", bytes(10_000), partition=0)
        producer.flush(20)
    limit(broker, "consumer_byte_rate", 10_000, [("client-id", "app")])
    pauses: list[float] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "client.id": "app",
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "fetch.message.max.bytes": 15_000,
        "throttle_cb": lambda event: pauses.append(event.throttle_time),
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe(["fetched"])
        wait_until(lambda: consumer.poll(0.1) is not None and any(pauses))
    finally:
        consumer.close()


async def test_throttled_connection_is_muted(broker: ServedBroker) -> None:
    await asyncio.to_thread(create, broker, "t")
    await asyncio.to_thread(limit, broker, "producer_byte_rate", 100)
    async with raw(broker) as client, raw(broker) as other:
        request = produce_request("t", {0: batch(bytes(500_000))})
        response = await client.ask(PRODUCE, 9, request)
        assert response.responses[0].partition_responses[0].error_code is ErrorCode.NONE
        assert response.throttle_time_ms > 600_000

        waiting = asyncio.create_task(client.ask(API_VERSIONS, 0, ApiVersionsRequest()))
        await other.ask(METADATA, 9, MetadataRequest(topics=None))
        assert not waiting.done()
        waiting.cancel()


@pytest.mark.parametrize("version", [5, 7])
def test_creation_of_too_many_partitions_is_refused(broker: ServedBroker, version: int) -> None:
    limit(broker, "controller_mutation_rate", 1.0)

    response = ask(
        broker.bootstrap, CREATE_TOPICS, version, create_request("a", "b", "c", partitions=20)
    )

    is_strict = version >= 6
    refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED if is_strict else ErrorCode.NONE
    codes = {topic.name: topic.error_code for topic in response.topics}
    assert codes == {"a": ErrorCode.NONE, "b": refused, "c": refused}
    assert response.throttle_time_ms >= 1_000


def test_other_changes_of_partitions_are_limited_too(broker: ServedBroker) -> None:
    create(broker, "old")
    limit(broker, "controller_mutation_rate", 1.0)
    grown = CreatePartitionsTopic(name="old", count=40, assignments=None)
    grow = CreatePartitionsRequest(topics=[grown], timeout_ms=20_000, validate_only=False)
    delete = DeleteTopicsRequest(
        topics=[DeleteTopicState(name="old")], topic_names=["old"], timeout_ms=20_000
    )

    [first] = ask(broker.bootstrap, CREATE_PARTITIONS, 3, grow).results
    response = ask(broker.bootstrap, DELETE_TOPICS, 6, delete)

    assert first.error_code is ErrorCode.NONE
    assert response.responses[0].error_code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert response.throttle_time_ms >= 1_000
    [lenient] = ask(broker.bootstrap, DELETE_TOPICS, 4, delete).responses
    assert lenient.error_code is ErrorCode.NONE


def test_topics_created_by_naming_them_are_limited_too(broker: ServedBroker) -> None:
    limit(broker, "controller_mutation_rate", 1.0)
    first = ask(broker.bootstrap, CREATE_TOPICS, 7, create_request("a", partitions=20))
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name="b")])

    response = ask(broker.bootstrap, METADATA, 9, wanted)

    assert first.topics[0].error_code is ErrorCode.NONE
    assert response.topics[0].error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert response.throttle_time_ms == 0
    limit(broker, "controller_mutation_rate", None)
    later = ask(broker.bootstrap, METADATA, 9, wanted)
    assert later.topics[0].error_code is ErrorCode.NONE


def test_processing_time_is_limited(broker: ServedBroker) -> None:
    limit(broker, "request_percentage", 1e-9)

    response = ask(broker.bootstrap, METADATA, 9, MetadataRequest(topics=None))

    assert response.throttle_time_ms == 1_000


async def test_connections_beyond_the_rate_of_an_address_are_closed(broker: ServedBroker) -> None:
    address: Parts = [("ip", "127.0.0.1")]
    async with raw(broker) as early:
        await asyncio.to_thread(limit, broker, "connection_creation_rate", 1, address)
        for _ in range(BURST_SECONDS):
            async with raw(broker) as client:
                await client.ask(API_VERSIONS, 0, ApiVersionsRequest())
        async with raw(broker) as late:
            with pytest.raises(Unavailable):
                await late.ask(API_VERSIONS, 0, ApiVersionsRequest())
        await early.ask(API_VERSIONS, 0, ApiVersionsRequest())


def test_removed_quota_no_longer_applies(broker: ServedBroker) -> None:
    limit(broker, "request_percentage", 1e-9)
    limit(broker, "request_percentage", None)

    response = ask(broker.bootstrap, METADATA, 9, MetadataRequest(topics=None))

    assert response.throttle_time_ms == 0
    assert not broker.broker.quotas.is_active
