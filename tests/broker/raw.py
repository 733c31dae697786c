"""A client that sends any request in any version, and batches that are made by hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

from rookery.broker.fetchplan import EXAMINED
from rookery.broker.topics import new_topic
from rookery.clock import SystemClock
from rookery.errors import ErrorCode
from rookery.net.upstream import Upstream, connect
from rookery.records.recordcodec import BatchSettings, Record, build
from rookery.testing.servedbroker import ServedBroker
from rookery.wire.message import Api, Message, Parts
from rookery.wire.messages.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)

TIMEOUT_MS = 20_000
MEBIBYTE = 1024 * 1024


def batch(
    *values: bytes | None, time_ms: int | None = None, settings: BatchSettings | None = None
) -> bytes:
    """Build a batch, as a producer does: of this moment, if no time is given."""
    stamp = SystemClock().now_ms() if time_ms is None else time_ms
    records = [Record(b"key", value, (), stamp) for value in values]
    return build(records, settings or BatchSettings())


def bytes_of(data: PartitionData) -> bytes:
    """Return the records of an answer."""
    records = data.records
    return b"".join(records) if isinstance(records, Parts) else bytes(records or b"")


class Raw:
    """One connection."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream

    async def ask(self, api: Api[Req, Res], version: int, request: Req) -> Res:
        return await self.upstream.call(api, version, request, TIMEOUT_MS)

    async def produce(
        self,
        topic: str,
        records: bytes | None,
        *,
        partition: int = 0,
        version: int = 9,
        acks: int = -1,
    ) -> PartitionProduceResponse:
        """Produce to one partition."""
        response = await self.ask(
            PRODUCE, version, produce_request(topic, {partition: records}, acks=acks)
        )
        [answer] = response.responses[0].partition_responses
        return answer

    async def fetch(
        self, topic: str, offset: int, *, partition: int = 0, version: int = 12, **options: Any
    ) -> PartitionData:
        """Fetch one partition, without waiting unless that is asked for."""
        response = await self.fetch_all({(topic, partition): offset}, version=version, **options)
        [answer] = response.responses[0].partitions
        return answer

    async def fetch_all(
        self, offsets: dict[tuple[str, int], int], *, version: int = 12, **options: Any
    ) -> FetchResponse:
        return await self.ask(FETCH, version, fetch_request(offsets, **options))


def produce_request(
    topic: str, records: dict[int, bytes | None], *, acks: int = -1, topic_id: bytes = bytes(16)
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=TIMEOUT_MS,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=topic_id,
                partition_data=[
                    PartitionProduceData(index=index, records=data)
                    for index, data in records.items()
                ],
            )
        ],
    )


def fetch_request(
    offsets: dict[tuple[str, int], int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 * MEBIBYTE,
    partition_max_bytes: int = MEBIBYTE,
    leader_epoch: int = -1,
    topic_ids: dict[str, bytes] | None = None,
    **fields: Any,
) -> FetchRequest:
    """Make a request for partitions, each from an offset on."""
    topics: list[FetchTopic] = []
    for (name, index), offset in offsets.items():
        if not topics or topics[-1].topic != name:
            topic_id = (topic_ids or {}).get(name, bytes(16))
            topics.append(FetchTopic(topic=name, topic_id=topic_id, partitions=[]))
        topics[-1].partitions.append(
            FetchPartition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=leader_epoch,
            )
        )
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=topics, **fields
    )


@contextlib.asynccontextmanager
async def raw(broker: ServedBroker) -> AsyncIterator[Raw]:
    """Connect to a broker."""
    upstream = await connect("127.0.0.1", broker.port)
    try:
        yield Raw(upstream)
    finally:
        upstream.close()
        await upstream.wait_closed()


def create(
    broker: ServedBroker,
    name: str,
    partitions: int = 1,
    configs: dict[str, str | None] | None = None,
) -> bytes:
    """Make a topic; return its id."""

    async def propose() -> bytes:
        event = new_topic(broker.broker.services, name, partitions, 1, configs)
        [outcome] = await broker.broker.replica.propose([event])
        assert outcome.error is ErrorCode.NONE
        return event.topic_id

    return broker.do(propose())


async def until_waiting(broker: ServedBroker, count: int) -> None:
    """Return when fetches wait for this number of partitions in the broker."""
    await _until(broker, lambda: len(broker.broker.waiting) == count)


async def until_examined(broker: ServedBroker, count: float) -> None:
    """Return when the fetches of all brokers have looked at this number of partitions."""
    await _until(broker, lambda: EXAMINED.value >= count)


async def _until(broker: ServedBroker, holds: Callable[[], bool]) -> None:
    async def look() -> None:
        while not holds():  # noqa: ASYNC110 (nothing reports it)
            await asyncio.sleep(0.001)

    await asyncio.wait_for(asyncio.to_thread(broker.do, look()), TIMEOUT_MS / 1000)


def forget_tail(broker: ServedBroker) -> None:
    """Let everything be read from disk from now on."""

    async def forget() -> None:
        tail = broker.broker.tail
        limit, tail.limit = tail.limit, 0
        while tail.used:
            tail._push_out()
        tail.limit = limit

    broker.do(forget())


def bases(responses: Sequence[ProduceResponse]) -> list[int]:
    return [
        part.base_offset
        for response in responses
        for topic in response.responses
        for part in topic.partition_responses
    ]
