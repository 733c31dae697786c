"""Producing to a real Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Message

from rookery.client.admin import NewTopic
from rookery.client.client import Client
from rookery.client.produce.partition import partition_of
from rookery.client.settings import (
    ACKS_LEADER,
    ACKS_NONE,
    ClientSettings,
    ProducerSettings,
)
from rookery.errors import ApiError, ErrorCode, Unavailable
from rookery.model.partition import TopicPartition
from rookery.records.compression import CODECS
from rookery.records.recordcodec import Record
from rookery.testing.kafka import KafkaServer

CODEC_NAMES = [codec.name for codec in CODECS.values()]


def place_and_record(message: Message) -> tuple[int, int, Record]:
    partition, offset, headers = message.partition(), message.offset(), message.headers() or []
    assert partition is not None
    assert offset is not None
    assert isinstance(headers, list)
    pairs = tuple((str(name), _bytes(value)) for name, value in headers)
    record = Record(_bytes(message.key()), _bytes(message.value()), pairs, message.timestamp()[1])
    return partition, offset, record


def _bytes(value: str | bytes | None) -> bytes | None:
    assert not isinstance(value, str)
    return value


def consume(bootstrap: str, topic: str, count: int) -> list[tuple[int, int, Record]]:
    """Read a topic with librdkafka: partition, offset and record."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    received: list[tuple[int, int, Record]] = []
    try:
        while len(received) < count:
            message = consumer.poll(10)
            assert message is not None, f"only {len(received)} of {count} came"
            assert message.error() is None
            received.append(place_and_record(message))
    finally:
        consumer.close()
    return received


async def topic_with(client: Client, name: str, configs: dict[str, str]) -> str:
    """Create a topic of four partitions with some settings."""
    await client.admin.create_topics([NewTopic(name=name, partitions=4, configs=configs)])
    return name


def some_records(count: int) -> list[Record]:
    return [
        Record(
            b"key-%d" % number if number % 3 else None,
            bytes([number % 256]) * (number % 400) if number % 7 else None,
            (("number", b"%d" % number), ("nothing", None)),
            1_700_000_000_000 + number,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("codec", CODEC_NAMES)
async def test_librdkafka_reads_our_records(
    kafka: KafkaServer, client: Client, topic: str, codec: str
) -> None:
    records = some_records(500)
    async with client.producer(ProducerSettings(compression=codec, batch_bytes=4096)) as producer:
        deliveries = [await producer.send(topic, record) for record in records]
        stored = [await delivery.wait() for delivery in deliveries]

    received = await asyncio.to_thread(consume, kafka.bootstrap, topic, len(records))
    by_place = {(partition, offset): record for partition, offset, record in received}
    assert len(by_place) == len(records)
    for record, place in zip(records, stored, strict=True):
        assert by_place[place.partition, place.offset] == record


async def test_keys_choose_the_partition(client: Client, topic: str) -> None:
    for key in (b"", b"jackdaw", b"rook", b"\0" * 100):
        stored = await client.produce(topic, b"x", key=key)
        assert stored.partition == partition_of(key, 10)


async def test_the_caller_may_choose_the_partition(client: Client, topic: str) -> None:
    assert (await client.produce(topic, b"x", key=b"k", partition=7)).partition == 7


async def test_keyless_records_reach_every_partition(client: Client, topic: str) -> None:
    settings = ProducerSettings(batch_bytes=200)
    async with client.producer(settings) as producer:
        sent = [await producer.send(topic, Record(None, bytes(150))) for _ in range(200)]
        partitions = [(await delivery.wait()).partition for delivery in sent]
    assert set(partitions) == set(range(10))


async def test_record_without_a_timestamp_gets_the_current_time(client: Client, topic: str) -> None:
    before = client.clock.now_ms()
    stored = await client.produce(topic, b"x")
    assert before <= stored.timestamp <= client.clock.now_ms()


async def test_the_broker_may_set_the_time(client: Client, new_name: Callable[[], str]) -> None:
    topic = await topic_with(client, new_name(), {"message.timestamp.type": "LogAppendTime"})
    stored = await client.produce(topic, b"x", timestamp=5)
    assert stored.timestamp > 1_700_000_000_000


@pytest.mark.parametrize("acks", [ACKS_LEADER, ACKS_NONE])
async def test_fewer_acks_deliver_all_records(client: Client, topic: str, acks: int) -> None:
    settings = ProducerSettings(acks=acks, batch_bytes=1000)
    # A leader that is not quite ready yet would drop what wants no answer.
    await client.produce(topic, b"0", partition=4)
    async with client.producer(settings) as producer:
        for number in range(1, 1000):
            await producer.send(topic, Record(None, b"%d" % number), 4)
        last = await producer.send(topic, Record(None, b"1000"), 4)
        await producer.flush()
        assert (await last.wait()).offset == (1000 if acks else -1)

    values = [int(record.value or b"") async for record in client.read(topic, 4)]
    assert values == list(range(1001))


async def test_closing_client_delivers_pending_records(
    kafka: KafkaServer, client: Client, topic: str
) -> None:
    async with Client(kafka.bootstrap) as other:
        producer = other.producer(ProducerSettings(linger_ms=60_000))
        for number in range(100):
            await producer.send(topic, Record(None, b"%d" % number), 0)

    assert len([record async for record in client.read(topic, 0)]) == 100


async def test_linger_collects_records_into_one_batch(client: Client, topic: str) -> None:
    async with client.producer(ProducerSettings(linger_ms=20)) as producer:
        sent = [await producer.send(topic, Record(None, b"x"), 0) for _ in range(50)]
        await asyncio.gather(*(delivery.wait() for delivery in sent))
    fetched = await client.fetcher.fetch({TopicPartition(topic, 0): 0})
    (fetch,) = fetched.values()
    assert [batch.header.record_count for batch in fetch.batches()] == [50]


async def test_send_waits_while_the_buffer_is_full(client: Client, topic: str) -> None:
    settings = ProducerSettings(buffer_bytes=50_000, batch_bytes=5_000)
    most = 0
    async with client.producer(settings) as producer:
        for _ in range(500):
            await producer.send(topic, Record(None, bytes(1000)))
            most = max(most, producer.buffered_bytes)
        await producer.flush()
        assert producer.delivered_records == 500
        assert producer.buffered_bytes == 0
    assert 40_000 < most <= 50_000


@pytest.mark.usefixtures("own_kafka")
async def test_full_buffer_is_reported_after_the_timeout(new_name: Callable[[], str]) -> None:
    with KafkaServer() as kafka:
        settings = ClientSettings(
            bootstrap=kafka.bootstrap, call_timeout_ms=15_000, request_timeout_ms=1_000
        )
        topic = new_name()
        async with Client(settings) as client:
            await client.create_topic(topic, 1, 1)
            await client.produce(topic, b"x")
            kafka.kill()
            short = ProducerSettings(buffer_bytes=10_000, delivery_timeout_ms=60_000)
            producer = client.producer(short)
            client.router.settings = ClientSettings(bootstrap=kafka.bootstrap, call_timeout_ms=300)
            with pytest.raises(Unavailable, match="buffer of 10000 bytes stayed full for 300 ms"):
                await asyncio.gather(
                    *(producer.send(topic, Record(None, bytes(1000))) for _ in range(100))
                )
            with pytest.raises(Unavailable, match="not delivered within 100 ms"):
                await producer.close(timeout_ms=100)


@pytest.mark.usefixtures("own_kafka")
async def test_unreachable_cluster_is_reported_with_its_cause(new_name: Callable[[], str]) -> None:
    topic = new_name()
    with KafkaServer() as kafka:
        async with Client(kafka.bootstrap) as client:
            await client.create_topic(topic, 1, 1)
            producer = client.producer(ProducerSettings(delivery_timeout_ms=700))
            await (await producer.send(topic, Record(None, b"one"))).wait()
            kafka.kill()
            lost = await producer.send(topic, Record(None, b"two"))
            with pytest.raises(Unavailable, match=rf"{topic}-0: not delivered within 700 ms"):
                await lost.wait()


async def test_flush_raises_failures_of_unawaited_records(
    client: Client, new_name: Callable[[], str]
) -> None:
    topic = await topic_with(client, new_name(), {"max.message.bytes": "1000"})
    async with client.producer() as producer:
        await producer.send(topic, Record(None, bytes(5000)), 3)
        with pytest.raises(ApiError, match=rf"MESSAGE_TOO_LARGE: broker .* {topic}-3"):
            await producer.flush()
        await producer.flush()


async def test_a_refused_batch_does_not_stop_the_others(
    client: Client, new_name: Callable[[], str]
) -> None:
    topic = await topic_with(client, new_name(), {"max.message.bytes": "3000"})
    settings = ProducerSettings(batch_bytes=500)
    async with client.producer(settings) as producer:
        sent = [
            await producer.send(topic, Record(None, bytes(6000 if number % 10 == 5 else 300)), 0)
            for number in range(30)
        ]
        results = await asyncio.gather(*(row.wait() for row in sent), return_exceptions=True)

    refused = [number for number, row in enumerate(results) if isinstance(row, ApiError)]
    assert refused == [number for number in range(30) if number % 10 == 5]
    codes = {row.code for row in results if isinstance(row, ApiError)}
    assert codes == {ErrorCode.MESSAGE_TOO_LARGE}
    offsets = [row.offset for row in results if not isinstance(row, BaseException)]
    assert offsets == list(range(27))


async def test_a_record_above_the_request_size_is_refused_at_once(
    client: Client, topic: str
) -> None:
    with pytest.raises(ApiError, match=r"MESSAGE_TOO_LARGE: a record of .* max_request_bytes"):
        await client.produce(topic, bytes(2_000_000))


async def test_unknown_topic_is_reported(kafka: KafkaServer) -> None:
    settings = ClientSettings(bootstrap=kafka.bootstrap, unknown_topic_ms=300)
    async with Client(settings) as client:
        with pytest.raises(ApiError, match="topic 'no-such-topic' does not exist") as caught:
            await client.produce("no-such-topic", b"x")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_unknown_partition_is_reported(client: Client, topic: str) -> None:
    with pytest.raises(ApiError, match="has no partition 10: it has 10, numbered from 0"):
        await client.produce(topic, b"x", partition=10)


async def test_closed_producer_refuses_records(client: Client, topic: str) -> None:
    producer = client.producer()
    await producer.close()
    with pytest.raises(Unavailable, match="the producer is closed"):
        await producer.send(topic, Record(None, b"x"))


async def test_topic_deleted_under_a_producer_is_reported(kafka: KafkaServer, topic: str) -> None:
    settings = ClientSettings(bootstrap=kafka.bootstrap, unknown_topic_ms=300)
    async with Client(settings) as client:
        await client.produce(topic, b"x")
        await client.delete_topic(topic)
        while topic in await client.admin.list_topics():
            pass  # the broker learns of it a moment after the controller
        with pytest.raises(ApiError, match="does not exist"):
            await client.produce(topic, b"y")


async def test_recreated_topic_starts_at_offset_0(client: Client, topic: str) -> None:
    for _ in range(3):
        await client.produce(topic, b"old", partition=0)
    old = await client.topic(topic)
    await client.delete_topic(topic)
    while topic in await client.admin.list_topics():
        pass  # the broker learns of it a moment after the controller
    await client.create_topic(topic, 10, 1)

    assert (await client.topic(topic)).id != old.id
    assert (await client.produce(topic, b"new", partition=0)).offset == 0
    assert [record.value async for record in client.read(topic, 0)] == [b"new"]


async def test_closing_fails_sends_that_wait_for_buffer_space(client: Client, topic: str) -> None:
    settings = ProducerSettings(buffer_bytes=2_000, linger_ms=60_000, delivery_timeout_ms=60_000)
    producer = client.producer(settings)
    sends = [
        asyncio.create_task(producer.send(topic, Record(None, bytes(1_500)), 0)) for _ in range(3)
    ]
    await asyncio.wait(sends, return_when=asyncio.FIRST_COMPLETED)
    await producer.close()

    results = await asyncio.gather(*sends, return_exceptions=True)
    assert [type(result) for result in results[1:]] == [Unavailable, Unavailable]
    assert producer.delivered_records == 1
