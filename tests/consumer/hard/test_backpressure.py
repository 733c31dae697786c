"""A partition that lags, while another holds more than fits into memory."""

from __future__ import annotations

from typing import Final

from rookery.consumer.api import read
from rookery.testing.kafkalogs import NOON, Logs, pack_rows, rows
from rookery.testing.kafkaproxy import KafkaProxy
from tests.consumer.hard.offline import dump, ordered, plain, values

MEMORY: Final = 128 * 1024
VALUE: Final = b"x" * 100


def test_lagging_partition_under_backpressure_is_read_in_order(
    logs: Logs, proxy: KafkaProxy
) -> None:
    topic = logs.create("laggard", 2)
    ahead = rows([NOON + 10_000 + 10 * n for n in range(3000)], VALUE)
    large = pack_rows(ahead.slice(1))
    logs.append(topic, {0: pack_rows(ahead.slice(0, 1))})
    logs.append(topic, {0: large})
    logs.write(topic, 1, rows([NOON + 1000 + 20 * n for n in range(3000)], VALUE), size=50)
    assert len(large) > MEMORY
    proxy.rtt_ms = dict.fromkeys(proxy.nodes, 10.0)

    with read(proxy.bootstrap, topic, memory=MEMORY, batch_rows=500) as stream:
        batches = []
        peak = 0
        for batch in stream:
            batches.append(batch)
            peak = max(peak, sum(values(stream.partitions(), "buffered_bytes")))

    sizes = [batch.num_rows for batch in batches]
    assert plain(batches).equals(ordered(dump(logs.bootstrap, [topic])))
    # In addition to its batch, a decoded row takes about 90 bytes for offset, time and places.
    assert peak <= MEMORY + len(large) + 3000 * 90
    assert sizes.count(1) <= 1
    assert len(sizes) <= 6000 // 50
