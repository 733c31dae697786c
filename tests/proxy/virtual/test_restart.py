"""A proxy that starts again finds the same offsets in the log, and so does another instance."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import TopicPartition

from rookery.proxy.virtual import slotindex
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedproxy import ServedProxy
from tests.proxy.virtual.conftest import SETTINGS, V
from tests.proxy.virtual.test_clients import COUNT, ROUNDS, consumer, produce, read


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let consumers of old records read stretches again."""
    monkeypatch.setattr(slotindex, "STRETCH_BYTES", 2_000)


def test_offsets_are_the_same_after_a_restart(kafka: KafkaServer, topic: str) -> None:
    with ServedProxy(kafka.bootstrap, SETTINGS) as first:
        produce(first.bootstrap, topic, 0, is_idempotent=True)
        with closing(consumer(first.bootstrap, topic)) as reader:
            offsets = [TopicPartition(topic, number, number) for number in range(V)]
            reader.commit(offsets=offsets, asynchronous=False)

    with (
        ServedProxy(kafka.bootstrap, SETTINGS) as second,
        ServedProxy(kafka.bootstrap, SETTINGS) as third,
    ):
        places = produce(second.bootstrap, topic, COUNT, is_idempotent=True)
        assert places[0] == (0, ROUNDS)
        for proxy in (second, third):
            with closing(consumer(proxy.bootstrap, topic)) as reader:
                committed = reader.committed(offsets, timeout=20)
                assert [each.offset for each in committed] == list(range(V))
                reader.assign([TopicPartition(topic, 7, 3)])
                got = [
                    (each.offset(), int(each.value() or b""))
                    for each in read(reader, 2 * ROUNDS - 3)
                ]
                assert got == [(at, 7 + V * at) for at in range(3, 2 * ROUNDS)]
