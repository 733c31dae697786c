"""Logs that end with entries that are not rows: markers, transactions, compacted records."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

import pytest

from rookery.consumer.api import read
from rookery.testing.kafka import KafkaServer
from rookery.testing.kafkalogs import NOON, Logs, rows
from rookery.testing.properties import KafkaSettings
from rookery.testing.wait import wait_until
from tests.consumer.hard.offline import dump, ordered, plain, values
from tests.consumer.hard.transactions import finish, transact

# As quick as Kafka's cleaner can be made.
CLEANING: Final = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.threads": "1",
    "log.segment.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "100",
}
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
}
WITHIN: Final = 120.0


@pytest.fixture(scope="module")
def cleaning() -> Iterator[KafkaServer]:
    """A Kafka that compacts at once."""
    with KafkaServer(KafkaSettings(properties=CLEANING)) as server:
        yield server


def test_partitions_that_end_with_markers_or_open_transactions_are_read(logs: Logs) -> None:
    topic = logs.create("ends", 4)
    transact(logs.bootstrap, (topic, 0), 10, "commit")
    logs.write(topic, 1, rows([NOON + n for n in range(10)]))
    transact(logs.bootstrap, (topic, 1), 5, "abort")
    logs.write(topic, 2, rows([NOON + n for n in range(10)]))
    logs.write(topic, 3, rows([NOON + n for n in range(10)]))
    producer = transact(logs.bootstrap, (topic, 3), 5, "open")

    with read(logs.bootstrap, topic) as stream:
        table = stream.to_table()
        states = values(stream.partitions(), "state")
    expected = ordered(dump(logs.bootstrap, [topic]))
    finish(logs.bootstrap, (topic, 3), producer, "abort")

    assert plain(table.to_batches()).equals(expected)
    assert table.num_rows == 40
    assert states == ["done", "done", "done", "blocked_by_transaction"]


@pytest.mark.kafka
def test_compacted_tail_does_not_block_the_end(cleaning: KafkaServer) -> None:
    with Logs(cleaning.bootstrap) as logs:
        topic = logs.create("compacted", 1, config=COMPACTED)
        logs.write(topic, 0, rows([NOON + n for n in range(10)]))
        transact(logs.bootstrap, (topic, 0), 20, "abort")
        _wait_for_cleaner(logs, topic)

        with read(logs.bootstrap, topic) as stream:
            table = stream.to_table()
            states = values(stream.partitions(), "state")

    assert values(table, "offset") == list(range(10))
    assert states == ["done"]


def _wait_for_cleaner(logs: Logs, topic: str) -> None:
    """Write aborted rows, which only closes segments, until the 20 are gone."""
    numbers = count(101)

    def left() -> set[int]:
        transact(logs.bootstrap, (topic, 0), next(numbers), "abort")
        offsets = values(dump(logs.bootstrap, [topic], "read_uncommitted"), "offset")
        return set(offsets) & set(range(10, 30))

    wait_until(
        left, "rows that Kafka has not removed", accepts=lambda left: not left, seconds=WITHIN
    )
