"""An idempotent producer loses, repeats and reorders no record while brokers stop or die."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import pytest

from rookery.client.admin import NewTopic
from rookery.client.client import Client
from rookery.client.produce.producer import Producer
from rookery.client.settings import ProducerSettings
from rookery.records.recordcodec import Record
from rookery.testing.kafka import KafkaCluster, KafkaNode, KafkaServer

PARTITIONS = 10
RECORDS = 20_000


async def send_numbers(producer: Producer, topic: str, under_way: asyncio.Event) -> None:
    """Send each number to the partition of its remainder; set the event when a tenth is stored."""
    for number in range(RECORDS):
        await producer.send(topic, Record(None, b"%d" % number), number % PARTITIONS)
        if number % 100 == 0:
            # Slow enough that a fault happens in the middle of the stream.
            await asyncio.sleep(0.01)
        if producer.delivered_records > RECORDS // 10:
            under_way.set()


async def until_under_way(
    under_way: asyncio.Event, sending: asyncio.Task[None], producer: Producer
) -> None:
    """Wait for the middle of the stream; fail if the stream ends before."""
    waiting = asyncio.create_task(under_way.wait())
    await asyncio.wait((waiting, sending), return_when=asyncio.FIRST_COMPLETED)
    if not under_way.is_set():
        waiting.cancel()
        await sending
        await producer.flush()
        pytest.fail("the stream has ended before it was interrupted")


async def read_numbers(client: Client, topic: str) -> list[list[int]]:
    """Read every partition from its start to its end."""
    numbers = []
    for partition in range(PARTITIONS):
        records = client.read(topic, partition)
        numbers.append([int(record.value or b"") async for record in records])
    return numbers


async def follow(client: Client, topic: str) -> list[int]:
    """Read the first partition while it is written, until its last number."""
    numbers: list[int] = []
    async with aclosing(client.read(topic, 0, follow=True)) as records:
        async for record in records:
            numbers.append(int(record.value or b""))
            if len(numbers) == RECORDS // PARTITIONS:
                break
    return numbers


def expected() -> list[list[int]]:
    return [list(range(partition, RECORDS, PARTITIONS)) for partition in range(PARTITIONS)]


@pytest.mark.usefixtures("own_kafka")
@pytest.mark.parametrize("end", [KafkaServer.stop, KafkaServer.kill], ids=["stop", "kill"])
async def test_exactly_once_survives_a_restart_during_a_stream(
    new_name: Callable[[], str], end: Callable[[KafkaServer], None]
) -> None:
    topic = new_name()
    with KafkaServer() as kafka:
        async with Client(kafka.bootstrap) as client:
            await client.create_topic(topic, PARTITIONS, 1)
            # Small batches without delay, so that many requests are in flight at the stop.
            settings = ProducerSettings(batch_bytes=2048, linger_ms=1, compression="lz4")
            async with client.producer(settings) as producer:
                under_way = asyncio.Event()
                sending = asyncio.create_task(send_numbers(producer, topic, under_way))
                await until_under_way(under_way, sending, producer)
                await asyncio.to_thread(end, kafka)
                await asyncio.to_thread(kafka.start)
                await sending
                await producer.flush()
                assert producer.retried_batches > 0

            numbers = await read_numbers(client, topic)
    assert numbers == expected()


@pytest.mark.parametrize("end", [KafkaNode.stop, KafkaNode.kill], ids=["stop", "kill"])
async def test_exactly_once_survives_the_loss_of_a_leader_during_a_stream(
    kafka_cluster: KafkaCluster, new_name: Callable[[], str], end: Callable[[KafkaNode], None]
) -> None:
    topic = new_name()
    async with Client(kafka_cluster.bootstrap) as client:
        await client.admin.create_topics(
            [
                NewTopic(
                    name=topic,
                    partitions=PARTITIONS,
                    replication_factor=3,
                    configs={"min.insync.replicas": "2"},
                )
            ]
        )
        victim = kafka_cluster.node((await client.topic(topic)).partitions[0].leader)
        settings = ProducerSettings(batch_bytes=2048, linger_ms=1)
        try:
            async with client.producer(settings) as producer:
                under_way = asyncio.Event()
                reading = asyncio.create_task(follow(client, topic))
                sending = asyncio.create_task(send_numbers(producer, topic, under_way))
                await until_under_way(under_way, sending, producer)
                await asyncio.to_thread(end, victim)
                await sending
                await producer.flush()
                assert producer.retried_batches > 0
            followed = await reading
            numbers = await read_numbers(client, topic)
            after = await client.admin.describe_topics([topic])
        finally:
            if not victim.is_running:
                await asyncio.to_thread(kafka_cluster.start)
    assert numbers == expected()
    assert followed == expected()[0]
    assert victim.id not in {part.leader for part in after[topic].partitions.values()}
