"""One scenario for each client: other clients see directly what it did through the proxy.

Our client's suite and librdkafka's run through the proxy with every change, before one Kafka.
`make test-peers` has those of Kafka's Java tools and kcat, and all of them before three Kafkas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, TopicPartition

from rookery.client.client import Client
from rookery.model.offset import EARLIEST
from rookery.model.partition import TopicPartition as Place
from rookery.testing.java import Java
from rookery.testing.tools import ToolHost
from rookery.testing.wait import wait_until
from tests.clients.javatools import Tool
from tests.kafkapython import KafkaConsumer, KafkaProducer
from tests.proxies import MODES, Proxies

COUNT = 200
VALUES = [b"value %d" % number for number in range(COUNT)]

Scenario = Callable[[str, str, str], Awaitable[list[bytes]]]
"""Writes `VALUES` to a topic, reads and commits them as a group; returns what was read."""


async def use_rookery(bootstrap: str, topic: str, group: str) -> list[bytes]:
    async with Client(bootstrap) as client:
        place = Place(topic, 0)
        await asyncio.gather(*(client.produce(topic, each, partition=0) for each in VALUES))
        position, read = await client.offsets.resolve(place, EARLIEST), list[bytes]()
        while len(read) < COUNT:
            fetched = (await client.fetcher.fetch({place: position}))[place]
            read += [bytes(record.value or b"") for record in fetched.records()]
            position = fetched.next_offset
        await client.groups.commit_offsets(group, {place: position})
    return read


async def use_aiokafka(bootstrap: str, topic: str, group: str) -> list[bytes]:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        for value in VALUES:
            await producer.send(topic, value, partition=0)
        await producer.flush()
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
    )
    async with consumer:
        read = [(await consumer.getone()).value for _ in range(COUNT)]
        await consumer.commit()
    return read


async def use_kafka_python(bootstrap: str, topic: str, group: str) -> list[bytes]:
    return await asyncio.to_thread(_use_kafka_python, bootstrap, topic, group)


def _use_kafka_python(bootstrap: str, topic: str, group: str) -> list[bytes]:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    for value in VALUES:
        producer.send(topic, value, partition=0)
    producer.flush(20)
    producer.close(10)
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
    )
    read: list[bytes] = []

    def has_all() -> bool:
        for rows in consumer.poll(1_000).values():
            read.extend(row.value for row in rows)
        return len(read) >= COUNT

    wait_until(has_all)
    consumer.commit()
    consumer.close()
    return read


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("use", [use_rookery, use_aiokafka, use_kafka_python])
async def test_records_and_commits_through_the_proxy_are_seen_directly(
    server: str, proxies: Proxies, mode: str, use: Scenario
) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    async with Client(server) as client:
        await client.create_topic(topic, partitions=1, replication_factor=1)

    read = await use(proxies.find(server, mode).bootstrap, topic, topic)

    assert read == VALUES
    check_directly(server, topic)


def check_directly(server: str, topic: str) -> None:
    """Check that the server has all records, and a commit after them in a group of their name."""
    direct = Consumer({"bootstrap.servers": server, "group.id": topic})
    try:
        [committed] = direct.committed([TopicPartition(topic, 0)], timeout=20)
        _, end = direct.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
    finally:
        direct.close()
    assert (committed.offset, end) == (COUNT, COUNT)


@pytest.fixture(scope="module")
def one_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolHost]:
    """One Java for all calls of tools, which has started."""
    with ToolHost(Java.find(), tmp_path_factory.mktemp("tools")) as host:
        assert host.tool("kafka-topics", "--version").returncode == 0
        yield host


@pytest.mark.parametrize("server", ["kafka"], indirect=True)
@pytest.mark.parametrize("mode", MODES)
def test_records_and_commits_of_java_through_the_proxy_are_seen_directly(
    server: str, proxies: Proxies, mode: str, one_java: ToolHost
) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    tool = Tool(one_java, proxies.find(server, mode).bootstrap)
    tool("kafka-topics", "--create", "--topic", topic, "--partitions", "1")

    tool("kafka-console-producer", "--topic", topic, text=b"\n".join(VALUES).decode() + "\n")
    read = tool.read(topic, COUNT, "--group", topic)

    assert [line.encode() for line in read] == VALUES
    check_directly(server, topic)


@pytest.fixture(scope="module")
def java(one_java: ToolHost) -> ToolHost:
    """The same Java, for tests that are too slow for every change."""
    return one_java


@pytest.mark.parametrize("server", ["kafka"], indirect=True)
def test_share_group_of_java_reads_through_mirror_nodes(
    server: str, proxies: Proxies, java: ToolHost
) -> None:
    """Two members acknowledge what they have read, so that none of it comes twice."""
    topic = f"t-{uuid4().hex[:8]}"
    tool = Tool(java, proxies.find(server, "mirror").bootstrap)
    tool("kafka-topics", "--create", "--topic", topic, "--partitions", "1")
    begin = ("--alter", "--add-config", "share.auto.offset.reset=earliest")
    tool("kafka-configs", "--entity-type", "groups", "--entity-name", topic, *begin)
    tool("kafka-console-producer", "--topic", topic, text=b"\n".join(VALUES).decode() + "\n")

    options = ("--topic", topic, "--group", topic, "--timeout-ms", "30000")
    half = ("--max-messages", str(COUNT // 2))
    read = [tool("kafka-console-share-consumer", *options, *half).splitlines() for _ in range(2)]

    assert sorted(line.encode() for lines in read for line in lines) == sorted(VALUES)
