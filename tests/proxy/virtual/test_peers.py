"""Clients of other kinds share virtual partitions, on three brokers through two instances."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.testing.kafka import KafkaCluster
from rookery.testing.ports import HOST, free_port
from rookery.testing.servedproxy import ServedProxy
from tests.kafkapython import KafkaConsumer, KafkaProducer
from tests.proxy.virtual.conftest import SETTINGS, V
from tests.proxy.virtual.test_clients import ROUNDS, produce
from tests.proxy.virtual.test_transactions import check_copy, copy, reader, writer

COUNT = 600
Records = list[tuple[int, int, int]]
"""Partition, offset and value."""


@pytest.fixture(scope="module")
def instances(kafka_cluster: KafkaCluster) -> Iterator[list[ServedProxy]]:
    """Two instances that know each other."""
    ports = {1: free_port(), 2: free_port()}
    listed = ",".join(f"{node}={HOST}:{port}" for node, port in ports.items())
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                ServedProxy(
                    kafka_cluster.bootstrap,
                    replace(SETTINGS, node_id=node, instances=listed),
                    port=port,
                )
            )
            for node, port in ports.items()
        ]


@pytest.fixture
def shared(instances: list[ServedProxy]) -> str:
    """A new topic, created through a proxy."""
    admin = AdminClient({"bootstrap.servers": instances[0].bootstrap})
    name = f"virtual-{uuid4().hex}"
    admin.create_topics([NewTopic(name, V, 3)])[name].result(30)
    return name


def write_with_kafka_python(bootstrap: str, topic: str) -> Records:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5)
    sent = [
        producer.send(topic, value=b"%d" % number, partition=number % V) for number in range(COUNT)
    ]
    producer.flush(30)
    places = [each.get(30) for each in sent]
    producer.close(10)
    return [(place.partition, place.offset, number) for number, place in enumerate(places)]


def write_with_aiokafka(bootstrap: str, topic: str) -> Records:
    async def run() -> Records:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=5
        )
        await producer.start()
        try:
            sent = [
                await producer.send(topic, b"%d" % number, partition=number % V)
                for number in range(COUNT)
            ]
            places = [await each for each in sent]
        finally:
            await producer.stop()
        return [(place.partition, place.offset, number) for number, place in enumerate(places)]

    return asyncio.run(run())


def read_with_kafka_python(bootstrap: str, topic: str) -> Records:
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest"
    )
    records: Records = []
    while len(records) < COUNT:
        got = consumer.poll(timeout_ms=30_000)
        assert got, f"nothing came after {len(records)}"
        records += [
            (each.partition, each.offset, int(each.value)) for row in got.values() for each in row
        ]
    consumer.close()
    return records


def read_with_aiokafka(bootstrap: str, topic: str) -> Records:
    async def run() -> Records:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest"
        )
        await consumer.start()
        records: Records = []
        try:
            while len(records) < COUNT:
                got = await consumer.getmany(timeout_ms=30_000)
                assert got, f"nothing came after {len(records)}"
                for row in got.values():
                    records += [(each.partition, each.offset, int(each.value)) for each in row]
        finally:
            await consumer.stop()
        return records

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("write", "read"),
    [
        (write_with_kafka_python, read_with_aiokafka),
        (write_with_aiokafka, read_with_kafka_python),
    ],
)
def test_one_writes_and_another_reads(
    instances: list[ServedProxy],
    shared: str,
    write: Callable[[str, str], Records],
    read: Callable[[str, str], Records],
) -> None:
    written = write(instances[0].bootstrap, shared)
    got = read(instances[1].bootstrap, shared)

    assert written == [(number % V, number // V, number) for number in range(COUNT)]
    assert sorted(got) == sorted(written)
    for partition in range(V):
        own = [value for index, _, value in got if index == partition]
        assert own == sorted(own)


def test_tools_of_kafka_see_virtual_partitions(
    kafka_cluster: KafkaCluster, instances: list[ServedProxy], shared: str
) -> None:
    def tool(name: str, *args: str) -> str:
        answer = kafka_cluster.tool(name, "--bootstrap-server", instances[0].bootstrap, *args)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    written = tool(
        "kafka-verifiable-producer", "--topic", shared, "--max-messages", "600", "--acks", "-1"
    )
    assert '"acked":600' in written
    described = tool("kafka-topics", "--describe", "--topic", shared)
    assert f"PartitionCount: {V}" in described
    read = tool(
        "kafka-verifiable-consumer",
        *("--topic", shared, "--group-id", shared, "--max-messages", "600"),
        *("--reset-policy", "earliest"),
    )
    assert '"name":"offsets_committed"' in read
    groups = tool("kafka-consumer-groups", "--describe", "--group", shared)
    rows = [line.split() for line in groups.splitlines() if line.startswith(shared)]
    assert sum(int(row[3]) for row in rows) == 600
    assert all(row[5] == "0" for row in rows)


def test_members_of_a_group_copy_records_once_through_both_instances(
    instances: list[ServedProxy],
) -> None:
    admin = AdminClient({"bootstrap.servers": instances[0].bootstrap})
    source, target = f"virtual-{uuid4().hex}", f"block-{uuid4().hex}"
    for name in (source, target):
        admin.create_topics([NewTopic(name, V, 3)])[name].result(30)
    produce(instances[0].bootstrap, source, 0, is_idempotent=True)
    total, done = ROUNDS * V, 0
    while done < total:
        for instance in instances:
            with closing(reader(instance.bootstrap, source)) as consumer:
                consumer.subscribe([source])
                producer = writer(instance.bootstrap, f"copy-{source}")
                stop = min(total // 2, total - done)
                done += copy(consumer, producer, source, target, stop)

    for instance in instances:
        check_copy(instance.bootstrap, source, target)


def test_transactions_of_java_are_whole(
    kafka_cluster: KafkaCluster, instances: list[ServedProxy], shared: str
) -> None:
    def tool(name: str, *args: str) -> str:
        answer = kafka_cluster.tool(name, *args)
        assert answer.returncode == 0, answer.stderr + answer.stdout
        return answer.stdout

    written = tool(
        "kafka-producer-perf-test",
        *("--topic", shared, "--num-records", "20000", "--record-size", "100"),
        *("--throughput", "-1", "--transactional-id", shared, "--transaction-duration-ms", "100"),
        *("--producer-props", f"bootstrap.servers={instances[0].bootstrap}", "acks=all"),
    )
    assert "20000 records sent" in written, written
    for instance in instances:
        read = tool(
            "kafka-console-consumer",
            *("--bootstrap-server", instance.bootstrap, "--topic", shared, "--from-beginning"),
            *("--isolation-level", "read_committed", "--timeout-ms", "5000"),
        )
        assert len(read.split()) == 20000
