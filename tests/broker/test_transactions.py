"""Transactions of real clients: what they commit is read, all at once; what they abort is not."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.broker.settings import BrokerSettings
from rookery.testing.broker import BrokerProcess
from rookery.testing.java import Java
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.wait import wait_until
from tests.broker.raw import create
from tests.kafkapython import KafkaProducer

SECONDS = 30


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with ServedBroker(folder, BrokerSettings(durability="os")) as broker:
        yield broker


@pytest.fixture
def topic(served: ServedBroker, request: pytest.FixtureRequest) -> str:
    name = "".join(character if character.isalnum() else "-" for character in request.node.name)
    create(served, name, 2)
    return name


def producer(bootstrap: str, name: str, **settings: object) -> Producer:
    """Make a producer, and let it fence its earlier lives."""
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": name} | settings)
    made.init_transactions(SECONDS)
    return made


def read(bootstrap: str, topic: str, level: str = "read_committed") -> list[str]:
    """Read both partitions to their ends."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": level,
         "enable.auto.commit": False, "enable.partition.eof": True, "check.crcs": True}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, index, 0) for index in (0, 1)])
    values: dict[int, list[str]] = {0: [], 1: []}
    ends = 0
    try:
        while ends < 2:
            message = consumer.poll(SECONDS)
            assert message is not None
            error = message.error()
            if error is None:
                values[message.partition() or 0].append((message.value() or b"").decode())
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends += 1
    finally:
        consumer.close()
    return values[0] + values[1]


def send(made: Producer, topic: str, *values: str) -> None:
    """Write to both partitions in turn, and wait until all is written."""
    for number, value in enumerate(values):
        made.produce(topic, value, partition=number % 2)
    assert made.flush(SECONDS) == 0


def test_transactions_commit_and_abort(served: ServedBroker, topic: str) -> None:
    made = producer(served.bootstrap, topic)
    for number in range(6):
        made.begin_transaction()
        send(made, topic, f"{number}-0", f"{number}-1")
        if number % 2:
            made.abort_transaction(SECONDS)
        else:
            made.commit_transaction(SECONDS)
    made.begin_transaction()
    send(made, topic, "open-0", "open-1")
    assert read(served.bootstrap, topic) == ["0-0", "2-0", "4-0", "0-1", "2-1", "4-1"]
    everything = [f"{number}-{part}" for part in (0, 1) for number in (*range(6), "open")]
    assert read(served.bootstrap, topic, "read_uncommitted") == everything
    made.commit_transaction(SECONDS)
    assert read(served.bootstrap, topic)[3::4] == ["open-0", "open-1"]


def test_second_producer_fences_the_first(served: ServedBroker, topic: str) -> None:
    first = producer(served.bootstrap, topic)
    first.begin_transaction()
    send(first, topic, "first")
    second = producer(served.bootstrap, topic)
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(SECONDS)
    assert raised.value.args[0].code() in {KafkaError._FENCED, KafkaError.PRODUCER_FENCED}
    second.begin_transaction()
    send(second, topic, "second")
    second.commit_transaction(SECONDS)
    assert read(served.bootstrap, topic) == ["second"]


def test_slow_producer_is_fenced(served: ServedBroker, topic: str) -> None:
    made = producer(
        served.bootstrap, topic, **{"transaction.timeout.ms": 1000, "message.timeout.ms": 1000}
    )
    made.begin_transaction()
    send(made, topic, "slow")
    partition = served.broker.replica.state.topics.by_name[topic].partitions[0]
    wait_until(lambda: not partition.ongoing)
    with pytest.raises(KafkaException):
        made.commit_transaction(SECONDS)
    assert read(served.bootstrap, topic) == []


def test_consumed_offsets_and_produced_records_commit_atomically(
    served: ServedBroker, topic: str
) -> None:
    """Copy a topic in transactions, of which every second one fails after it has written."""
    source, group = f"{topic}-source", f"{topic}-group"
    create(served, source, 2)
    plain = Producer({"bootstrap.servers": served.bootstrap})
    values = [f"v{number}" for number in range(10)]
    send(plain, source, *values)
    is_bad = True
    copied = 0
    while copied < len(values):
        consumer = Consumer(
            {"bootstrap.servers": served.bootstrap, "group.id": group,
             "enable.auto.commit": False, "auto.offset.reset": "earliest",
             "isolation.level": "read_committed"}
        )  # fmt: skip
        consumer.subscribe([source])
        made = producer(served.bootstrap, topic)
        made.begin_transaction()
        for message in consumer.consume(10, SECONDS):
            made.produce(topic, message.value(), partition=message.partition() or 0)
            copied += not is_bad
        made.flush(SECONDS)
        offsets = consumer.position(consumer.assignment())
        made.send_offsets_to_transaction(
            [offset for offset in offsets if offset.offset >= 0],
            consumer.consumer_group_metadata(),
            SECONDS,
        )
        if is_bad:
            made.abort_transaction(SECONDS)
        else:
            made.commit_transaction(SECONDS)
        is_bad = not is_bad
        consumer.close()
    assert sorted(read(served.bootstrap, topic)) == sorted(values)
    many = read(served.bootstrap, topic, "read_uncommitted")
    assert len(many) > len(values)


async def test_aiokafka_transactions_work(served: ServedBroker, topic: str) -> None:
    made = AIOKafkaProducer(bootstrap_servers=served.bootstrap, transactional_id=topic)
    await made.start()
    try:
        async with made.transaction():
            await made.send_and_wait(topic, b"a", partition=0)
            await made.send_offsets_to_transaction({AioPartition(topic, 0): 5}, "aio")
        await made.begin_transaction()
        await made.send_and_wait(topic, b"b", partition=0)
        await made.abort_transaction()
        async with made.transaction():
            await made.send_and_wait(topic, b"c", partition=1)
    finally:
        await made.stop()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=served.bootstrap, group_id="aio", isolation_level="read_committed",
        auto_offset_reset="earliest", enable_auto_commit=False,
    )  # fmt: skip
    await consumer.start()
    try:
        consumer.assign([AioPartition(topic, 0), AioPartition(topic, 1)])
        assert await consumer.committed(AioPartition(topic, 0)) == 5
        await consumer.seek_to_beginning()
        values: list[bytes | None] = []
        while len(values) < 2:
            for messages in (await consumer.getmany(timeout_ms=1000)).values():
                values += [message.value for message in messages]
        assert sorted(value for value in values if value) == [b"a", b"c"]
    finally:
        await consumer.stop()


def test_kafka_python_transactions_work(served: ServedBroker, topic: str) -> None:
    made = KafkaProducer(bootstrap_servers=served.bootstrap, transactional_id=topic)
    made.init_transactions()
    for value, end in ((b"a", made.commit_transaction), (b"b", made.abort_transaction)):
        made.begin_transaction()
        made.send(topic, value, partition=0).get(SECONDS)
        end()
    made.close()
    assert read(served.bootstrap, topic) == ["a"]
    assert read(served.bootstrap, topic, "read_uncommitted") == ["a", "b"]


@pytest.mark.parametrize("step", ["written", "offsets", "committed"])
def test_broker_killed_between_the_steps_of_a_transaction_recovers(
    tmp_path: Path, step: str
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 2)])["t"].result(SECONDS)
        made = producer(broker.bootstrap, "x")
        made.begin_transaction()
        send(made, "t", "a", "b")
        if step != "written":
            consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
            made.send_offsets_to_transaction(
                [TopicPartition("t", 0, 7)], consumer.consumer_group_metadata(), SECONDS
            )
            consumer.close()
        if step == "committed":
            made.commit_transaction(SECONDS)
        broker.kill()
        broker.start()
        expected = ["a", "b"]
        if step != "committed":
            assert read(broker.bootstrap, "t") == []
            made.commit_transaction(SECONDS)
        assert read(broker.bootstrap, "t") == expected
        if step != "written":
            reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
            [place] = reader.committed([TopicPartition("t", 0)], SECONDS)
            reader.close()
            assert place.offset == 7


def tool(java: Java, name: str, *args: str) -> str:
    done: subprocess.CompletedProcess[str] = java.tool(name, *args, timeout=90)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_java_producer_uses_one_epoch_per_transaction(
    served: ServedBroker, topic: str, java: Java
) -> None:
    tool(
        java,
        "kafka-producer-perf-test",
        *("--bootstrap-server", served.bootstrap, "--topic", topic, "--num-records", "300"),
        *("--record-size", "50", "--throughput", "-1", "--transactional-id", topic),
        *("--transaction-duration-ms", "5"),
    )
    transaction = served.broker.replica.state.transactions.by_id[topic]
    assert transaction.writer.epoch > 0
    assert len(read(served.bootstrap, topic)) == 300


def test_java_tool_describes_transactions(served: ServedBroker, topic: str, java: Java) -> None:
    made = producer(served.bootstrap, topic)
    made.begin_transaction()
    send(made, topic, "open")
    run: Callable[..., str] = lambda *args: tool(  # noqa: E731 (short)
        java, "kafka-transactions", "--bootstrap-server", served.bootstrap, *args
    )
    assert "Ongoing" in run("describe", "--transactional-id", topic)
    assert topic in run("list")
    assert "CurrentTransactionStartOffset" in run(
        "describe-producers", "--topic", topic, "--partition", "0"
    )
    made.commit_transaction(SECONDS)
    assert "CompleteCommit" in run("describe", "--transactional-id", topic)
