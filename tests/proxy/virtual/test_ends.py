"""Fetches report ends that advance, whichever records they ask for."""

from __future__ import annotations

import asyncio

from rookery.net.upstream import connect
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from tests.proxy.virtual.conftest import SETTINGS
from tests.proxy.virtual.test_clients import COUNT, ROUNDS, produce

_VERSION = 12


async def fetch_end(port: int, topic: str) -> int:
    """Fetch the first record of a partition; return the high watermark in the response."""
    part = FetchPartition(partition=3, fetch_offset=0, partition_max_bytes=1)
    request = FetchRequest(
        max_wait_ms=5_000, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[part])]
    )
    link = await connect("127.0.0.1", port)
    try:
        response = await link.call(FETCH, _VERSION, request, 20_000)
    finally:
        link.close()
    end: int = response.responses[0].partitions[0].high_watermark
    return end


def test_a_consumer_of_old_records_receives_new_ones(
    kafka: KafkaServer, proxy: ServedProxy, topic: str
) -> None:
    with ServedProxy(kafka.bootstrap, SETTINGS) as other:
        for turn in range(2):
            # Through another instance than the consumer's.
            produce(proxy.bootstrap, topic, turn * COUNT, is_idempotent=True)
            end = (turn + 1) * ROUNDS
            wait_until(
                lambda: asyncio.run(fetch_end(other.port, topic)),
                "the high watermark has all records",
                accepts=end.__eq__,
            )
