"""Idempotent producers: repeated, reordered and renewed batches, over a restart too."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Producer

from rookery.broker.settings import BrokerSettings
from rookery.errors import ErrorCode
from rookery.records import recordcodec
from rookery.records.recordcodec import BatchSettings
from rookery.testing.servedbroker import ServedBroker
from rookery.wire.messages.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    TopicRequest,
)
from rookery.wire.messages.init_producer_id import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.broker.raw import Raw, batch, bytes_of, create, raw

LAST = 2**31 - 1
OK, OUT_OF_ORDER = ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
_ids = count(1000)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with ServedBroker(folder, BrokerSettings(durability="os")) as broker:
        yield broker


@pytest.fixture
def topic(served: ServedBroker, request: pytest.FixtureRequest) -> str:
    name = "".join(character if character.isalnum() else "-" for character in request.node.name)
    create(served, name, 2)
    return name


class Sender:
    """A producer whose id, epoch and sequences are chosen by the test."""

    def __init__(self, client: Raw, topic: str, producer_id: int | None = None) -> None:
        self.client = client
        self.topic = topic
        self.id = next(_ids) if producer_id is None else producer_id

    async def send(
        self, sequence: int, many: int = 1, *, epoch: int = 0, partition: int = 0
    ) -> tuple[ErrorCode, int]:
        settings = BatchSettings(producer_id=self.id, producer_epoch=epoch, base_sequence=sequence)
        data = batch(*[b"%d" % sequence] * many, settings=settings)
        answer = await self.client.produce(self.topic, data, partition=partition)
        return answer.error_code, answer.base_offset


async def test_repeated_batch_is_answered_with_its_first_offset(
    served: ServedBroker, topic: str
) -> None:
    async with raw(served) as client:
        sender = Sender(client, topic)
        assert await sender.send(0, 3) == (OK, 0)
        assert await sender.send(3, 2) == (OK, 3)
        for _ in range(2):
            assert await sender.send(0, 3) == (OK, 0)
            assert await sender.send(3, 2) == (OK, 3)
        assert (await client.fetch(topic, 0)).high_watermark == 5


async def test_last_five_batches_are_recognised(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        sender = Sender(client, topic)
        for sequence in range(6):
            assert await sender.send(sequence) == (OK, sequence)
        for sequence in range(1, 6):
            assert await sender.send(sequence) == (OK, sequence)
        code, offset = await sender.send(0)
        assert (code, offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert (await client.fetch(topic, 0)).high_watermark == 6


async def test_a_gap_is_out_of_order(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        sender = Sender(client, topic)
        assert await sender.send(0) == (OK, 0)
        assert await sender.send(2) == (OUT_OF_ORDER, -1)
        assert await sender.send(1) == (OK, 1)
        assert await sender.send(2) == (OK, 2)


async def test_sequences_are_separate_by_partition_and_producer(
    served: ServedBroker, topic: str
) -> None:
    async with raw(served) as client:
        first, second = Sender(client, topic), Sender(client, topic)
        assert await first.send(0) == (OK, 0)
        assert await second.send(0) == (OK, 1)
        assert await first.send(0, partition=1) == (OK, 0)
        assert await first.send(1) == (OK, 2)


async def test_stale_producer_epochs_are_fenced(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        sender = Sender(client, topic)
        assert await sender.send(0, epoch=1) == (OK, 0)
        assert await sender.send(1, epoch=0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
        assert await sender.send(5, epoch=2) == (OUT_OF_ORDER, -1)
        assert await sender.send(0, epoch=2) == (OK, 1)
        assert await sender.send(1, epoch=1) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
        assert await sender.send(1, epoch=2) == (OK, 2)


async def test_sequences_wrap_around(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        sender = Sender(client, topic)
        assert await sender.send(LAST - 2, 2) == (OK, 0)
        # LAST, 0 and 1 are in one batch.
        assert await sender.send(LAST, 3) == (OK, 2)
        assert await sender.send(LAST, 3) == (OK, 2)
        assert await sender.send(2) == (OK, 5)
        assert await sender.send(LAST - 2, 2) == (OK, 0)
        records = recordcodec.read_all(bytes_of(await client.fetch(topic, 0)))
    assert [record.offset for record in records] == list(range(6))


async def test_unknown_producer_can_start_at_any_sequence(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        sender = Sender(client, topic)
        assert await sender.send(4711, epoch=3) == (OK, 0)
        assert await sender.send(4712, epoch=3) == (OK, 1)


async def test_producer_state_survives_a_restart(tmp_path: Path) -> None:
    settings = BrokerSettings(durability="os")
    with ServedBroker(tmp_path, settings) as broker:
        create(broker, "t")
        async with raw(broker) as client:
            sender = Sender(client, "t", 42)
            for sequence in range(7):
                assert await sender.send(sequence, epoch=1) == (OK, sequence)
    with ServedBroker(tmp_path, settings) as broker:
        async with raw(broker) as client:
            sender = Sender(client, "t", 42)
            for sequence in range(2, 7):
                assert await sender.send(sequence, epoch=1) == (OK, sequence)
            assert await sender.send(9, epoch=1) == (OUT_OF_ORDER, -1)
            assert await sender.send(7, epoch=0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
            assert await sender.send(7, epoch=1) == (OK, 7)


async def test_repeated_batch_is_recognised_by_another_broker(tmp_path: Path) -> None:
    settings = BrokerSettings(durability="os")
    with ServedBroker(tmp_path, settings) as first, ServedBroker(tmp_path, settings) as second:
        create(first, "t")
        async with raw(first) as near, raw(second) as far:
            here, there = Sender(near, "t", 42), Sender(far, "t", 42)
            for sequence in range(20):
                assert await here.send(sequence) == (OK, sequence)
                assert await there.send(sequence) == (OK, sequence)


async def init(
    client: Raw, version: int = 4, producer_id: int = -1, epoch: int = -1
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id=None,
        transaction_timeout_ms=60_000,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    return await client.ask(INIT_PRODUCER_ID, version, request)


@pytest.mark.parametrize("version", range(6))
async def test_producer_ids_are_unique(served: ServedBroker, version: int) -> None:
    async with raw(served) as client:
        answers = [await init(client, version) for _ in range(20)]
    assert {answer.producer_epoch for answer in answers} == {0}
    assert len({answer.producer_id for answer in answers}) == 20


async def test_epoch_is_raised_until_it_is_exhausted(served: ServedBroker) -> None:
    async with raw(served) as client:
        first = await init(client)
        raised = await init(client, 4, first.producer_id, 0)
        assert (raised.producer_id, raised.producer_epoch) == (first.producer_id, 1)
        exhausted = await init(client, 4, first.producer_id, 2**15 - 2)
        assert exhausted.producer_id != first.producer_id
        assert exhausted.producer_epoch == 0
        # An id that was never handed out will belong to another producer later.
        foreign = await init(client, 4, 10**12, 5)
        assert foreign.producer_id < 10**12
        assert (await init(client, 4, 5, -1)).error_code is ErrorCode.INVALID_REQUEST


async def test_producers_are_described(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        sender = Sender(client, topic)
        await sender.send(0, 10, epoch=2)
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=topic, partition_indexes=[0, 1, 7])]
        )
        response = await client.ask(DESCRIBE_PRODUCERS, 0, request)
    known, none, bad = response.topics[0].partitions
    [producer] = known.active_producers
    assert (producer.producer_id, producer.producer_epoch) == (sender.id, 2)
    assert (producer.last_sequence, producer.current_txn_start_offset) == (9, -1)
    assert abs(producer.last_timestamp - served.broker.services.clock.now_ms()) < 60_000
    assert (none.error_code, none.active_producers) == (OK, [])
    assert bad.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_librdkafka_writes_once_and_in_order(served: ServedBroker, topic: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": served.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 3,
        }
    )
    for number in range(3000):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(20) == 0
    partition = served.broker.replica.state.topics.by_name[topic].partitions[0]
    assert partition.next_offset == 3000
    assert len(partition.producers) == 1
