"""kill -9 while clients write to a directory: nothing acknowledged is lost, nothing is doubled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from rookery.testing.broker import BrokerProcess
from rookery.testing.kafkasight import SECONDS
from tests.logdir.made import make_directory

PARTITIONS = 3
KILLS = 2
TURNS = 12
"""Transactions between two kills."""


def read(bootstrap: str) -> list[tuple[bytes, int, int]]:
    """Return what a reader of committed records gets: values, partitions and offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("t", index, 0) for index in range(PARTITIONS)])
    ends: set[int] = set()
    messages = []
    while len(ends) < PARTITIONS:
        message: Any = consumer.poll(SECONDS)
        assert message is not None
        if message.error() is None:
            messages.append((message.value(), message.partition(), message.offset()))
        else:
            ends.add(message.partition())
    consumer.close()
    return messages


class Writers:
    """A producer whose batches are distinct, and one that has transactions."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 300}
        self.plain = Producer({**settings, "enable.idempotence": True, "linger.ms": 2})
        self.transactional = Producer({**settings, "transactional.id": "x"})
        self.transactional.init_transactions(SECONDS)
        self.acknowledged: set[tuple[bytes, int, int]] = set()
        self.committed: set[bytes] = set()
        self.failures: list[Any] = []
        self._sent = 0

    def begin(self) -> set[bytes]:
        """Write a little of both; return what is part of the transaction."""
        self.transactional.begin_transaction()
        values = {b"in transaction %d" % (self._sent + index) for index in range(PARTITIONS)}
        for index, value in enumerate(values):
            self.transactional.produce("t", value, partition=index)
        for _ in range(60):
            value = b"%d" % self._sent
            self.plain.produce("t", value, partition=self._sent % 3, on_delivery=self._told)
            self._sent += 1
        self.plain.poll(0)
        return values

    def commit(self, values: set[bytes]) -> None:
        try:
            self.transactional.commit_transaction(SECONDS)
        except KafkaException as error:
            # A client may find that it must start over; then nothing of it may be read.
            if not error.args[0].txn_requires_abort():
                raise
            self.transactional.abort_transaction(SECONDS)
        else:
            self.committed |= values

    def _told(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged.add((message.value(), message.partition(), message.offset()))


@pytest.mark.usefixtures("own_victim")
def test_acknowledged_records_are_neither_lost_nor_duplicated(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "logs", {"t": [[]] * PARTITIONS})
    flags = ["--log-dir", str(folder)]
    flags += ["--offsets-topic-partitions", "2", "--transactions-topic-partitions", "2"]
    with BrokerProcess(tmp_path / "broker", flags=flags) as broker:
        writers = Writers(broker.bootstrap)
        for _ in range(KILLS):
            for _ in range(TURNS):
                writers.commit(writers.begin())
            values = writers.begin()
            broker.kill()
            broker.start()
            writers.commit(values)
        assert writers.plain.flush(SECONDS) == 0
        assert not writers.failures
        messages = read(broker.bootstrap)
        assert broker.stop(within=60) == 0
    values_read = [value for value, _, _ in messages]
    assert len(values_read) == len(set(values_read))
    assert writers.acknowledged <= set(messages)
    assert writers.committed <= set(values_read)
    assert len(messages) == len(writers.acknowledged) + len(writers.committed)
