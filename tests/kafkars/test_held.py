"""The number of buffered rows: kafkars' limit, in addition to the limit in bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rookery.kafkars import ConsumerManager, SourceTopic
from rookery.kafkars.manager import HELD_BATCHES
from rookery.testing.kafka import KafkaServer
from rookery.testing.kafkalogs import NOON, Logs, rows
from rookery.testing.wait import wait_until

WITHIN = 90.0
PARTITIONS, ROWS, BATCH = 4, 5_000, 100


@pytest.fixture
def logs(kafka: KafkaServer) -> Iterator[Logs]:
    with Logs(kafka.bootstrap) as made:
        yield made


def most_held(logs: Logs, size: int) -> int:
    """Read partitions that are far apart, in Kafka's batches of a size; return what was held."""
    topic = logs.create("held", PARTITIONS)
    for partition in range(PARTITIONS):
        times = [NOON + n * (partition + 1) for n in range(ROWS)]
        logs.write(topic, partition, rows(times), size=size)
    config = {"bootstrap.servers": logs.bootstrap}
    sources = [SourceTopic.from_earliest(topic)]
    seen, held = [], []
    with ConsumerManager(config, sources, BATCH) as manager:

        def is_live() -> bool:
            seen.append(manager.poll(100).num_rows)
            held.append(manager.held_message_count())
            return manager.is_live()

        wait_until(is_live, seconds=WITHIN, pause=0)
    assert sum(seen) == PARTITIONS * ROWS
    return max(held)


def test_no_more_than_five_batches_are_held(logs: Logs) -> None:
    assert 0 < most_held(logs, size=20) <= HELD_BATCHES * BATCH


def test_one_batch_per_partition_can_always_be_held(logs: Logs) -> None:
    size = 3 * BATCH
    assert BATCH < most_held(logs, size) <= (PARTITIONS + 1) * size + BATCH
