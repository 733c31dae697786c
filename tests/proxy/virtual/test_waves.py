"""One Produce request with batches for all virtual partitions, as Java clients send them."""

from __future__ import annotations

import asyncio
from typing import Any

from rookery.errors import ErrorCode
from rookery.net.upstream import connect
from rookery.records import batches
from rookery.records.recordcodec import BatchSettings, Record, build
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedproxy import ServedProxy
from rookery.wire.message import Parts
from rookery.wire.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.proxy.virtual.conftest import SETTINGS, V

ROUNDS = 10
_HIGHEST_PRODUCE, _HIGHEST_FETCH = 12, 12
_COVERED = slice(16, None)
"""What follows base offset, length and leader epoch."""


def batch(partition: int, sequence: int, count: int = 2) -> bytes:
    settings = BatchSettings(producer_id=4_000, producer_epoch=3, base_sequence=sequence)
    return build([Record(None, b"%d %d" % (partition, each)) for each in range(count)], settings)


async def send(
    port: int, topic: str, records: dict[int, bytes]
) -> dict[int, tuple[ErrorCode, int]]:
    """Send one request; return code and offset of each partition."""
    parts = [PartitionProduceData(index=index, records=data) for index, data in records.items()]
    topics = [TopicProduceData(name=topic, partition_data=parts)]
    request = ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=topics)
    response = await ask(port, PRODUCE, _HIGHEST_PRODUCE, request)
    return {
        row.index: (row.error_code, row.base_offset)
        for row in response.responses[0].partition_responses
    }


async def ask(port: int, api: Any, version: int, request: Any) -> Any:
    upstream = await connect("127.0.0.1", port)
    try:
        return await upstream.call(api, version, request, 20_000)
    finally:
        upstream.close()


async def fetch(port: int, topic: str) -> dict[int, bytes]:
    """Return the records of all partitions."""
    parts = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(V)
    ]
    request = FetchRequest(
        max_wait_ms=5_000,
        min_bytes=1,
        max_bytes=1 << 24,
        topics=[FetchTopic(topic=topic, partitions=parts)],
    )
    response = await ask(port, FETCH, _HIGHEST_FETCH, request)
    rows = response.responses[0].partitions
    assert all(row.high_watermark == 2 * ROUNDS for row in rows)
    return {
        row.partition_index: b"".join(row.records)
        if isinstance(row.records, Parts)
        else bytes(row.records)
        for row in rows
    }


def test_partitions_that_share_a_physical_one_keep_all_their_batches(
    proxy: ServedProxy, topic: str
) -> None:
    async def run() -> None:
        for number in range(ROUNDS):
            records = {index: batch(index, 2 * number) for index in range(V)}
            offsets = await send(proxy.port, topic, records)
            assert offsets == dict.fromkeys(range(V), (ErrorCode.NONE, 2 * number))

        for index, data in (await fetch(proxy.port, topic)).items():
            got = [bytes(data[each.position : each.end]) for each in batches.verify(data)]
            made = [batch(index, 2 * number) for number in range(ROUNDS)]
            assert [each[_COVERED] for each in got] == [each[_COVERED] for each in made]

    asyncio.run(run())


def test_a_batch_that_is_sent_again_keeps_its_offset_also_through_another_instance(
    kafka: KafkaServer, proxy: ServedProxy, topic: str
) -> None:
    async def run(other: int) -> None:
        first = {index: batch(index, 0) for index in range(V)}
        done = dict.fromkeys(range(V), (ErrorCode.NONE, 0))
        assert await send(proxy.port, topic, first) == done
        second = {index: batch(index, 2) for index in range(V)}
        await send(proxy.port, topic, second)
        assert await send(other, topic, first) == done
        assert await send(proxy.port, topic, first) == done
        # The sequences of one partition are checked on their own.
        gap = await send(other, topic, {3: batch(3, 4), 7: batch(7, 6)})
        assert gap[3] == (ErrorCode.NONE, 4)
        assert gap[7][0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    with ServedProxy(kafka.bootstrap, SETTINGS) as other:
        asyncio.run(run(other.port))


def test_metadata_without_topic_ids_leaves_logs_as_they_are(proxy: ServedProxy, topic: str) -> None:
    async def run() -> None:
        topics = [MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        for number in range(3):
            for version in (4, 9, 12):
                answer = await ask(proxy.port, METADATA, version, request)
                assert len(answer.topics[0].partitions) == V
            offsets = await send(proxy.port, topic, {7: batch(7, 2 * number)})
            assert offsets == {7: (ErrorCode.NONE, 2 * number)}

    asyncio.run(run())


def test_a_bad_batch_is_refused_alone(proxy: ServedProxy, topic: str) -> None:
    damaged = batch(1, 0)[:-1] + b"?"

    answer = asyncio.run(
        send(proxy.port, topic, {1: damaged, 5: batch(5, 0), V: batch(V, 0), -1: batch(0, 0)})
    )

    assert answer[1][0] is ErrorCode.CORRUPT_MESSAGE
    assert answer[5] == (ErrorCode.NONE, 0)
    assert answer[V][0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer[-1][0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
