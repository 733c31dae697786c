"""Offsets of partitions, asked of a real Kafka."""

from __future__ import annotations

import pytest

from rookery.client.client import Client
from rookery.client.settings import ClientSettings, ProducerSettings
from rookery.errors import ApiError, ErrorCode
from rookery.model.offset import EARLIEST, LATEST, MAX_TIMESTAMP
from rookery.model.partition import TopicPartition
from rookery.records.recordcodec import Record
from rookery.testing.kafka import KafkaServer

T0 = 1_700_000_000_000


@pytest.fixture
async def place(client: Client, topic: str) -> TopicPartition:
    """A partition with a record for each second, ten to a batch."""
    async with client.producer(ProducerSettings(linger_ms=1000)) as producer:
        for batch in range(3):
            for number in range(10):
                record = Record(None, b"x", (), T0 + (batch * 10 + number) * 1000)
                await producer.send(topic, record, 1)
            await producer.flush()
    return TopicPartition(topic, 1)


@pytest.mark.parametrize(
    ("spec", "offset", "timestamp"),
    [
        (EARLIEST, 0, -1),
        (LATEST, 30, -1),
        (MAX_TIMESTAMP, 29, T0 + 29_000),
        (T0, 0, T0),
        (T0 + 13_500, 14, T0 + 14_000),
        (T0 + 29_000, 29, T0 + 29_000),
        (T0 + 29_001, -1, -1),
    ],
)
async def test_offsets_are_found_by_position_and_by_time(
    client: Client, place: TopicPartition, spec: int, offset: int, timestamp: int
) -> None:
    row = (await client.offsets.find({place: spec}))[place]
    assert (row.offset, row.timestamp) == (offset, timestamp)


async def test_offsets_of_many_partitions_are_found_in_one_call(
    client: Client, place: TopicPartition
) -> None:
    places = [TopicPartition(place.topic, number) for number in range(10)]
    rows = await client.offsets.find(dict.fromkeys(places, LATEST))
    assert [rows[each].offset for each in places] == [0, 30, *[0] * 8]


async def test_unknown_partition_is_reported(client: Client, topic: str) -> None:
    with pytest.raises(ApiError, match="has no partition 99: there are 10, numbered from 0"):
        await client.offsets.find({TopicPartition(topic, 99): EARLIEST})


async def test_unknown_topic_is_reported(kafka: KafkaServer) -> None:
    settings = ClientSettings(bootstrap=kafka.bootstrap, unknown_topic_ms=300)
    async with Client(settings) as client:
        with pytest.raises(ApiError, match="topic 'nowhere' does not exist") as caught:
            await client.offsets.find({TopicPartition("nowhere", 0): EARLIEST})
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
