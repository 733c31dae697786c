"""`rookery recover` after transactions, with a real broker and client: commits are still read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cli.storage import Broker

TOPIC = "birds"
PARTITIONS = 2
SECONDS = 60.0


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """A broker that writes objects and never a snapshot."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROOKERY_CONFIG", raising=False)
    store = tmp_path / "objects"
    store.mkdir()
    where = ["--store", f"file://{store}"]
    flags = [*where, "--inline-bytes", "0", "--caretaker", "off"]
    return Broker(tmp_path / "data", flags, where)


def lose_log(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "objects/_rookery/default/log")


def transact(broker: Broker) -> list[str]:
    """Commit and abort transactions with offsets of a group; return what was committed."""
    producer = Producer(
        {"bootstrap.servers": broker.process.bootstrap, "transactional.id": "copier"}
    )
    producer.init_transactions(SECONDS)
    reader = consumer(broker)
    for number in range(6):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, f"{number}", partition=partition)
        producer.send_offsets_to_transaction(
            [TopicPartition(TOPIC, 0, 100 + number)], reader.consumer_group_metadata(), SECONDS
        )
        if number % 3 < 2:
            producer.commit_transaction(SECONDS)
        else:
            producer.flush(SECONDS)
            producer.abort_transaction(SECONDS)
    reader.close()
    return [str(number) for number in range(6) if number % 3 < 2]


def consumer(broker: Broker) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.process.bootstrap,
            "group.id": "copiers",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )


def read(broker: Broker, partition: int) -> list[str]:
    """Read what is committed."""
    reader = consumer(broker)
    reader.assign([TopicPartition(TOPIC, partition, 0)])
    values: list[str] = []
    try:
        while True:
            message = reader.poll(SECONDS)
            assert message is not None, "the end of the partition does not come"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return values
            values.append((message.value() or b"").decode())
    finally:
        reader.close()


def offset(broker: Broker) -> int:
    """Return how far the group has read."""
    reader = consumer(broker)
    try:
        [committed] = reader.committed([TopicPartition(TOPIC, 0)], SECONDS)
        return committed.offset
    finally:
        reader.close()


def create(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.process.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(SECONDS)


@pytest.mark.parametrize("is_killed", [False, True])
def test_committed_transactions_are_read(tmp_path: Path, broker: Broker, is_killed: bool) -> None:
    with broker.process:
        create(broker)
        committed = transact(broker)
        if is_killed:
            # Any later object of the broker tells; this one's own offsets are lost with it.
            broker.produce("other", 1)
            broker.process.kill()
        else:
            assert broker.process.stop() == 0
        lose_log(tmp_path)

        code, said = broker.recover("--yes", "--append-unplaced")

        assert (code, said["faults"], said["lost"]) == (0, [], [])
        broker.process.start()
        assert [read(broker, partition) for partition in range(PARTITIONS)] == [
            committed
        ] * PARTITIONS
        assert offset(broker) == 104
        # The producer starts over.
        more = transact(broker)
        assert read(broker, 0) == committed + more
