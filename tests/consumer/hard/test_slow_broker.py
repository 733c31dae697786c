"""A slow broker delays the whole stream, and no row is out of order."""

from __future__ import annotations

from typing import Final

from rookery.consumer.api import read
from rookery.testing.kafkalogs import NOON, Logs, rows
from rookery.testing.kafkaproxy import KafkaProxy
from tests.consumer.hard.offline import plain, values

RTT_MS: Final = 300.0


def test_slow_broker_at_the_start_is_awaited(many: Logs) -> None:
    topic = many.create("slow", 12)
    fast = 0
    slow = next(n for n in range(12) if many.leader(topic, n) != many.leader(topic, fast))
    many.write(topic, fast, rows([NOON + n for n in range(2000, 3000)]))
    many.write(topic, slow, rows([NOON + n for n in range(1000, 2000)]))

    with KafkaProxy(many.bootstrap) as proxy:
        proxy.rtt_ms[many.leader(topic, slow)] = RTT_MS
        with read(proxy.bootstrap, topic) as stream:
            table = plain(list(stream))

    assert values(table, "timestamp") == [NOON + n for n in range(1000, 3000)]
    assert values(table, "partition") == [slow] * 1000 + [fast] * 1000
