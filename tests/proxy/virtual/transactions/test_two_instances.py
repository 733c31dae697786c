"""One transactional producer writes through two instances that both believe they lead.

With the same producer, epoch and sequence, Kafka takes the batches of two virtual partitions of one
physical partition for the same one: it acknowledges the second and does not append it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

from rookery.errors import ErrorCode
from rookery.model.offset import LATEST
from rookery.net.upstream import Upstream, connect
from rookery.records import batches, recordcodec
from rookery.records.recordcodec import BatchSettings, Record, build
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedproxy import ServedProxy
from rookery.wire.message import Parts
from rookery.wire.messages.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from rookery.wire.messages.end_txn import END_TXN, EndTxnRequest
from rookery.wire.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from rookery.wire.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from rookery.wire.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.proxy.virtual.conftest import SETTINGS, P

ROUNDS = 20
PARTITIONS = (1, 1 + P, 1 + 2 * P)
"""They share a physical partition."""
_PRODUCE, _FETCH, _LIST, _ADD, _END, _INIT = 11, 12, 6, 3, 4, 4


@asynccontextmanager
async def open_links(*ports: int) -> AsyncIterator[list[Upstream]]:
    async with AsyncExitStack() as stack:
        links = [await connect("127.0.0.1", port) for port in ports]
        for link in links:
            stack.callback(link.close)
        yield links


class Transactions:
    """The transactions of one producer, each with a new epoch."""

    def __init__(self, topic: str, links: list[Upstream]) -> None:
        self.topic = topic
        self.links = links
        self.producer: Any = None
        self.committed: dict[int, list[int]] = {each: [] for each in PARTITIONS}

    async def ask(self, link: Upstream, api: Any, version: int, request: Any) -> Any:
        return await link.call(api, version, request, 20_000)

    async def retry(self, api: Any, version: int, request: Any, name: str) -> Any:
        """Ask until the coordinator has finished what it does."""
        while True:
            answer = await self.ask(self.links[0], api, version, request)
            code = getattr(answer, name, ErrorCode.NONE)
            if not code.retriable:
                assert code is ErrorCode.NONE
                return answer

    async def begin(self) -> None:
        self.producer = await self.retry(
            INIT_PRODUCER_ID,
            _INIT,
            InitProducerIdRequest(transactional_id=self.topic, transaction_timeout_ms=60_000),
            "error_code",
        )
        while True:
            topics = [AddPartitionsToTxnTopic(name=self.topic, partitions=list(PARTITIONS))]
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.topic,
                v3_and_below_producer_id=self.producer.producer_id,
                v3_and_below_producer_epoch=self.producer.producer_epoch,
                v3_and_below_topics=topics,
            )
            answer = await self.ask(self.links[0], ADD_PARTITIONS_TO_TXN, _ADD, request)
            [row] = answer.results_by_topic_v3_and_below
            assert [each.partition_index for each in row.results_by_partition] == list(PARTITIONS)
            codes = {each.partition_error_code for each in row.results_by_partition}
            if codes == {ErrorCode.NONE}:
                return
            assert all(code.retriable for code in codes)

    async def write(self, link: Upstream, partition: int, sequence: int, value: int) -> ErrorCode:
        settings = BatchSettings(
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = PartitionProduceData(
            index=partition, records=build([Record(None, b"%d" % value)], settings)
        )
        topics = [TopicProduceData(name=self.topic, partition_data=[data])]
        request = ProduceRequest(
            transactional_id=self.topic, acks=-1, timeout_ms=20_000, topic_data=topics
        )
        answer = await self.ask(link, PRODUCE, _PRODUCE, request)
        code: ErrorCode = answer.responses[0].partition_responses[0].error_code
        return code

    async def end(self, *, is_committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.topic,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            committed=is_committed,
        )
        await self.retry(END_TXN, _END, request, "error_code")

    async def play(self, number: int) -> bool:
        """Write to all partitions at once; return whether the transaction was committed."""
        await self.begin()
        random = Random(number)
        first, second = random.sample(self.links, 2)
        # The first batches of a transaction come through one instance or both.
        chosen = [first, random.choice(self.links), random.choice(self.links)]
        codes = await asyncio.gather(
            *(
                self.write(link, each, 0, number)
                for link, each in zip(chosen, PARTITIONS, strict=True)
            )
        )
        written = 1
        if any(codes):
            # The client repeats all of them through one.
            codes = [await self.write(first, each, 0, number) for each in PARTITIONS]
        elif random.random() < 0.7:
            # It continues, sometimes after it has learned of another leader.
            link = random.choice((first, first, second))
            codes = [await self.write(link, each, 1, number) for each in PARTITIONS]
            written = 2
        is_committed = not any(codes)
        await self.end(is_committed=is_committed)
        if is_committed:
            for each in PARTITIONS:
                self.committed[each] += [number] * written
        return is_committed

    async def read(self, link: Upstream) -> dict[int, list[int]]:
        """Return the committed values of all partitions."""
        values: dict[int, list[int]] = {}
        for partition in PARTITIONS:
            # A fetch of old records reports the ends that its instance knows, so ask for the end.
            end = await self.find_end(link, partition)
            row = await self.fetch(link, partition, 0)
            # Markers are written after EndTxn is answered.
            while row.last_stable_offset < end:
                row = await self.fetch(link, partition, row.last_stable_offset)
            row = await self.fetch(link, partition, 0)
            data = b"".join(row.records) if isinstance(row.records, Parts) else row.records
            values[partition] = committed_values(bytes(data), row.aborted_transactions)
        return values

    async def find_end(self, link: Upstream, partition: int) -> int:
        part = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[ListOffsetsTopic(name=self.topic, partitions=[part])],
        )
        answer = await self.ask(link, LIST_OFFSETS, _LIST, request)
        end: int = answer.topics[0].partitions[0].offset
        return end

    async def fetch(self, link: Upstream, partition: int, offset: int) -> Any:
        part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 24)
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            isolation_level=1,
            topics=[FetchTopic(topic=self.topic, partitions=[part])],
        )
        answer = await self.ask(link, FETCH, _FETCH, request)
        return answer.responses[0].partitions[0]


def committed_values(data: bytes, aborted: list[Any]) -> list[int]:
    """Return the values that a consumer of committed transactions delivers."""
    pending = sorted((each.first_offset, each.producer_id) for each in aborted)
    ignored: set[int] = set()
    values: list[int] = []
    for header in batches.verify(data):
        while pending and pending[0][0] <= header.last_offset:
            ignored.add(pending.pop(0)[1])
        if header.is_control:
            [record] = recordcodec.read(data, header)
            if recordcodec.control(record).type == 0:
                ignored.discard(header.producer_id)
        elif header.producer_id not in ignored:
            values += [int(each.value or b"") for each in recordcodec.read(data, header)]
    return values


def test_nothing_acknowledged_is_missing(
    kafka: KafkaServer, proxy: ServedProxy, topic: str
) -> None:
    async def run(other: int) -> None:
        async with open_links(proxy.port, other) as links:
            transactions = Transactions(topic, links)
            ends = [await transactions.play(number) for number in range(ROUNDS)]
            assert {True, False} == set(ends)
            for link in links:
                assert await transactions.read(link) == transactions.committed

    with ServedProxy(kafka.bootstrap, SETTINGS) as other:
        asyncio.run(run(other.port))
