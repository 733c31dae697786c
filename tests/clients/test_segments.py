"""Other clients read segments from a broker that has nothing in memory."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from rookery.testing.backends import ServerBackend, list_keys
from rookery.testing.brokers import BRISK, Host
from rookery.testing.java import Java
from rookery.testing.wait import wait_until
from tests.clients.peers import new_topic
from tests.kafkapython import KafkaConsumer

COUNT = 3_000
SECONDS = 60
VALUES = [b"value %d " % number + b"." * (number % 700) for number in range(COUNT)]


@pytest.fixture(scope="module")
def written(
    backend: ServerBackend, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """A broker's address and its topic, all of which is in segments or merged objects."""
    folder = tmp_path_factory.mktemp("segments")
    store, cluster = backend.store(folder.name), backend.cluster(folder.name)
    with Host(folder / "host", store=store, cluster=cluster, flags=BRISK) as broker:
        topic = new_topic(broker.bootstrap)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        for value in VALUES:
            producer.produce(topic, value, partition=0)
        assert producer.flush(SECONDS) == 0
        wait_until(lambda: list_keys(store, f"/{topic}/0/segment-"), "segments", pause=0.1)
        broker.kill()
        broker.start()
        yield broker.bootstrap, topic


def test_librdkafka_reads_segments(written: tuple[str, str]) -> None:
    bootstrap, topic = written
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values = [message.value() for message in consumer.consume(COUNT, SECONDS)]
    finally:
        consumer.close()

    assert values == VALUES


def test_kafka_python_reads_segments(written: tuple[str, str]) -> None:
    bootstrap, topic = written
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, consumer_timeout_ms=SECONDS * 1000, check_crcs=True
    )
    try:
        consumer.assign([kafka.TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        values = [next(consumer).value for _ in range(COUNT)]
    finally:
        consumer.close()

    assert values == VALUES


async def test_aiokafka_reads_segments(written: tuple[str, str]) -> None:
    bootstrap, topic = written
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        place = aiokafka.TopicPartition(topic, 0)
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        values = [(await consumer.getone()).value for _ in range(COUNT)]
    finally:
        await consumer.stop()

    assert values == VALUES


def test_kcat_reads_segments(written: tuple[str, str]) -> None:
    bootstrap, topic = written
    kcat = shutil.which("kcat") or pytest.fail("kcat is missing; scripts/install-peers gets it")
    command = [kcat, "-b", bootstrap, "-t", topic, "-C", "-o", "beginning", "-e", "-q"]

    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=SECONDS, check=True)

    assert done.stdout.splitlines() == VALUES


@pytest.mark.kafka
def test_java_consumer_reads_segments(written: tuple[str, str], java: Java) -> None:
    bootstrap, topic = written
    done = java.tool(
        "kafka-console-consumer",
        *("--bootstrap-server", bootstrap, "--topic", topic),
        *("--partition", "0", "--offset", "0", "--max-messages", str(COUNT)),
        *("--timeout-ms", str(SECONDS * 1000)),
        timeout=90,
    )

    assert done.stdout.encode().splitlines() == VALUES
