"""Retention, lost leaders, flipped bytes and refusals in the middle of a replay."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from threading import Timer

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from rookery.consumer.api import read
from rookery.consumer.faults import CorruptBatch, OffsetTruncated
from rookery.consumer.output.batch import Batch
from rookery.errors import ErrorCode
from rookery.testing.kafkafaults import KafkaFault, Row, fail_fetch, fail_offsets, flip
from rookery.testing.kafkalogs import NOON, Logs, pack_rows, rows
from rookery.testing.kafkaproxy import KafkaProxy
from tests.consumer.hard.offline import dump, of_partition, ordered, plain, values

COUNT = 20_000
KEPT = 18_000
OUTAGE = 1.5
VALUE = b"%d " + b"x" * 90


def _topic(logs: Logs) -> str:
    topic = logs.create("faults", 2)
    for partition in range(2):
        batch = rows([NOON + 2 * n + partition for n in range(COUNT)], VALUE)
        logs.write(topic, partition, batch, size=200)
    return topic


def _delete(logs: Logs, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": logs.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        future.result(60)


def test_reader_overtaken_by_retention_fails(logs: Logs) -> None:
    topic = _topic(logs)
    with read(logs.bootstrap, topic, memory=64 * 1024, batch_rows=100) as stream:
        batches = [next(stream)]
        _delete(logs, topic, KEPT)
        with pytest.raises(OffsetTruncated) as caught:
            batches.extend(stream)

    seen = plain(batches)
    mine = of_partition(seen, 0)
    error = caught.value
    assert (error.topic, error.partition, error.earliest) == (topic, 0, KEPT)
    # Exactly what was not handed out is lost, and nothing was skipped before it.
    assert values(mine, "offset") == list(range(error.wanted))
    assert error.lost_count == KEPT - error.wanted > 0


def test_reader_overtaken_by_retention_can_continue_at_the_log_start(logs: Logs) -> None:
    topic = _topic(logs)
    with read(
        logs.bootstrap, topic, memory=64 * 1024, batch_rows=100, on_truncation="earliest"
    ) as stream:
        batches = [next(stream)]
        _delete(logs, topic, KEPT)
        batches.extend(stream)
        states = stream.partitions()

    seen = plain(batches)
    mine = values(of_partition(seen, 0), "offset")
    gaps = [(a + 1, b) for a, b in pairwise(mine) if b != a + 1]
    assert len(gaps) == 1
    assert gaps[0][1] == KEPT
    assert mine[-1] == COUNT - 1
    assert values(states, "lost") == [gaps[0][1] - gaps[0][0], 0]
    assert of_partition(seen, 1).num_rows == COUNT


def test_temporarily_unreachable_brokers_are_survived(logs: Logs, proxy: KafkaProxy) -> None:
    topic = _topic(logs)
    with read(proxy.bootstrap, topic, memory=256 * 1024, batch_rows=500) as stream:
        batches = [next(stream)]
        for _ in range(2):
            proxy.cut()
            back = Timer(OUTAGE, proxy.mend)
            back.start()
            # More than memory holds, so it must be fetched when the way is open again.
            batches.extend(next(stream) for _ in range(12))
            back.join()
        batches.extend(stream)

    assert plain(batches).equals(ordered(dump(logs.bootstrap, [topic])))


def test_flipped_byte_is_never_returned(logs: Logs, proxy: KafkaProxy) -> None:
    topic = _topic(logs)
    fault = proxy.add(KafkaFault(flip, topic, 1, times=None))
    batches: list[Batch] = []
    with read(proxy.bootstrap, topic) as stream:
        with pytest.raises(CorruptBatch) as caught:
            batches.extend(stream)
        again = caught.value.offset
        with pytest.raises(CorruptBatch) as caught:
            batches.extend(stream)
        proxy.clear()
        batches.extend(stream)

    assert fault.done
    assert (caught.value.topic, caught.value.partition) == (topic, 1)
    assert caught.value.offset == again
    assert plain(batches).equals(ordered(dump(logs.bootstrap, [topic])))


def test_permanently_corrupt_batches_can_be_skipped(logs: Logs, proxy: KafkaProxy) -> None:
    topic = logs.create("corrupt", 1)
    made = rows([NOON + n for n in range(300)], VALUE)
    for start in (0, 100, 200):
        logs.append(topic, {0: pack_rows(made.slice(start, 100))})
    proxy.add(KafkaFault(flip, topic, 0, times=1))

    with read(proxy.bootstrap, topic, on_corrupt="skip") as stream:
        offsets = values(stream.to_table(), "offset")

    assert offsets == list(range(100, 300))


@pytest.mark.parametrize(
    "change",
    [
        fail_fetch(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        fail_fetch(ErrorCode.FENCED_LEADER_EPOCH),
        fail_fetch(ErrorCode.UNKNOWN_LEADER_EPOCH),
        fail_fetch(ErrorCode.OFFSET_NOT_AVAILABLE),
        fail_fetch(ErrorCode.KAFKA_STORAGE_ERROR),
        fail_offsets(ErrorCode.OFFSET_NOT_AVAILABLE),
        fail_offsets(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_retriable_refusals_are_retried(
    logs: Logs, proxy: KafkaProxy, change: Callable[[Row], bool]
) -> None:
    topic = logs.create("refused", 2)
    for partition in range(2):
        logs.write(topic, partition, rows([NOON + n for n in range(3000)]), size=100)
    fault = proxy.add(KafkaFault(change, topic, 1, times=3))

    with read(proxy.bootstrap, topic) as stream:
        table = stream.to_table()

    assert fault.is_spent
    assert plain(table.to_batches()).equals(ordered(dump(logs.bootstrap, [topic])))
