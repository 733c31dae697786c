"""aiokafka, on an event loop of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.clients.peers import BOTH, CODECS

COUNT = 500


async def _new_topic(bootstrap: str, name: str, partitions: int = 1) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(name, partitions, 1)])
    await admin.close()


async def _produce(bootstrap: str, topic: str, **settings: object) -> list[int]:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, **settings)
    await producer.start()
    try:
        futures = [
            await producer.send(
                topic,
                b"value %d" % number,
                key=b"key",
                headers=[("number", b"%d" % number)],
                timestamp_ms=1_700_000_000_000 + number,
            )
            for number in range(COUNT)
        ]
        await producer.flush()
        return [(await future).offset for future in futures]
    finally:
        await producer.stop()


async def _consume(bootstrap: str, topic: str) -> list[Any]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        place, records = TopicPartition(topic, 0), list[Any]()
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        end = (await consumer.end_offsets([place]))[place]
        while len(records) < end:
            got = await consumer.getmany(timeout_ms=30_000)
            assert got, "nothing came"
            records.extend(got[place])
        return records
    finally:
        await consumer.stop()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotence", [True, False])
async def test_produced_records_are_consumed(bootstrap: str, codec: str, idempotence: bool) -> None:
    topic = f"aiokafka-{codec}-{idempotence}"
    await _new_topic(bootstrap, topic)
    compression = None if codec == "none" else codec

    offsets = await _produce(
        bootstrap, topic, compression_type=compression, enable_idempotence=idempotence
    )

    rows = await _consume(bootstrap, topic)
    assert offsets == list(range(COUNT))
    assert [row.value for row in rows] == [b"value %d" % number for number in range(COUNT)]
    assert [row.timestamp for row in rows] == [1_700_000_000_000 + n for n in range(COUNT)]
    assert [list(row.headers) for row in rows[:2]] == [[("number", b"0")], [("number", b"1")]]


@pytest.mark.parametrize("bootstrap", BOTH, indirect=True)
async def test_topics_are_administered(bootstrap: str) -> None:
    name = "aiokafka-admin"
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "1000"})])
        await admin.create_partitions({name: NewPartitions(4)})
        for _ in range(200):  # Kafka's brokers learn late of what its controller decides
            (row,) = await admin.describe_topics([name])
            if len(row["partitions"]) == 4:
                break
            await asyncio.sleep(0.05)
        else:
            pytest.fail("the new partitions did not appear")
        configs = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])

        assert "1000" in str(configs)
        assert name in await admin.list_topics()
        await admin.delete_topics([name])
    finally:
        await admin.close()


@pytest.mark.parametrize("bootstrap", BOTH, indirect=True)
async def test_offsets_are_found_by_time(bootstrap: str) -> None:
    await _new_topic(bootstrap, "aiokafka-times")
    await _produce(bootstrap, "aiokafka-times")
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        place = TopicPartition("aiokafka-times", 0)
        first = (await consumer.offsets_for_times({place: 1_700_000_000_100}))[place]

        assert (first.offset, first.timestamp) == (100, 1_700_000_000_100)
        assert await consumer.beginning_offsets([place]) == {place: 0}
    finally:
        await consumer.stop()
