"""Reading from a real Kafka."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Producer as OtherProducer

from rookery.client.client import Client
from rookery.client.fetch import FetchSettings, Isolation
from rookery.client.settings import ProducerSettings
from rookery.errors import ApiError, ErrorCode
from rookery.model.offset import LATEST
from rookery.model.partition import TopicPartition
from rookery.records.compression import CODECS
from rookery.records.recordcodec import Record
from rookery.testing.kafka import KafkaServer

COMMITTED = FetchSettings(isolation=Isolation.READ_COMMITTED)


@pytest.mark.parametrize("codec", [codec.name for codec in CODECS.values()])
async def test_records_written_by_librdkafka_are_read(
    kafka: KafkaServer, client: Client, topic: str, codec: str
) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap, "compression.type": codec}
    # Only then the order stays whatever it has to send twice.
    other = OtherProducer(settings | {"enable.idempotence": True})
    for number in range(1000):
        other.produce(
            topic,
            b"%d" % number * 50,
            b"key" if number % 2 else None,
            number % 10,
            timestamp=1_700_000_000_000 + number,
            headers=[("n", b"%d" % number)],
        )
    assert other.flush(30) == 0

    for partition in range(10):
        records = [record async for record in client.read(topic, partition)]
        numbers = range(partition, 1000, 10)
        assert records == [
            Record(
                b"key" if number % 2 else None,
                b"%d" % number * 50,
                (("n", b"%d" % number),),
                1_700_000_000_000 + number,
                offset,
            )
            for offset, number in enumerate(numbers)
        ]


async def fill(client: Client, topic: str, count: int, partitions: int = 10) -> None:
    async with client.producer(ProducerSettings(batch_bytes=1000)) as producer:
        for number in range(count):
            await producer.send(topic, Record(None, b"%d" % number), number % partitions)


async def test_many_partitions_in_one_fetch(client: Client, topic: str) -> None:
    await fill(client, topic, 1000)
    positions = {TopicPartition(topic, partition): partition for partition in range(10)}

    fetched = await client.fetcher.fetch(positions)
    assert fetched.keys() == positions.keys()
    for place, part in fetched.items():
        offsets = [record.offset for record in part.records()]
        assert offsets == list(range(place.partition, 100))
        assert (part.next_offset, part.high_watermark, part.log_start_offset) == (100, 100, 0)


async def test_reading_begins_inside_a_batch(client: Client, topic: str) -> None:
    await fill(client, topic, 300, partitions=1)

    offsets = [record.offset async for record in client.read(topic, 0, offset=123)]
    assert offsets == list(range(123, 300))


async def test_small_fetches_return_all_records(client: Client, topic: str) -> None:
    await fill(client, topic, 2000, partitions=1)
    small = FetchSettings(partition_max_bytes=1500, max_bytes=1500)

    values = [int(record.value or b"") async for record in client.read(topic, 0, settings=small)]
    assert values == list(range(2000))


async def test_reading_an_empty_partition_ends_immediately(client: Client, topic: str) -> None:
    assert [record async for record in client.read(topic, 0)] == []


async def test_follow_returns_later_records(client: Client, topic: str) -> None:
    await client.produce(topic, b"old", partition=0)
    reader = client.read(topic, 0, offset=LATEST, follow=True)
    coming = asyncio.ensure_future(anext(reader))
    await client.produce(topic, b"other", partition=1)
    while not coming.done():
        await client.produce(topic, b"new", partition=0)
    assert (await coming).value == b"new"
    await reader.aclose()


async def test_a_reader_may_stop_early(client: Client, topic: str) -> None:
    await fill(client, topic, 1000, partitions=1)
    reader = client.read(topic, 0)
    assert (await anext(reader)).offset == 0
    await reader.aclose()


async def test_out_of_range_offset_is_reported_with_the_valid_range(
    client: Client, topic: str
) -> None:
    await fill(client, topic, 20, partitions=1)
    await client.admin.delete_records({TopicPartition(topic, 0): 5})

    for offset in (3, 21):
        message = rf"{topic}-0 has no offset {offset}: it holds 5 to 19, and the next will be 20"
        with pytest.raises(ApiError, match=message) as caught:
            await client.fetcher.fetch({TopicPartition(topic, 0): offset})
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_fetching_at_the_end_is_not_an_error(client: Client, topic: str) -> None:
    await fill(client, topic, 20, partitions=1)
    place = TopicPartition(topic, 0)

    fetched = await client.fetcher.fetch({place: 20}, FetchSettings(max_wait_ms=10))
    assert list(fetched[place].records()) == []
    assert fetched[place].next_offset == 20


async def test_unknown_partition_is_reported(client: Client, topic: str) -> None:
    with pytest.raises(ApiError, match=rf"topic '{topic}' has no partition 11"):
        await client.fetcher.fetch({TopicPartition(topic, 11): 0})


async def test_isolation_level_decides_which_transactions_are_read(
    kafka: KafkaServer, client: Client, topic: str
) -> None:
    other = OtherProducer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    await asyncio.to_thread(other.init_transactions, 30)
    for number in range(6):
        await asyncio.to_thread(other.begin_transaction)
        for part in range(3):
            other.produce(topic, b"%d-%d" % (number, part), partition=0)
        await asyncio.to_thread(other.flush, 30)
        end = other.abort_transaction if number % 2 else other.commit_transaction
        await asyncio.to_thread(end, 30)

    def values(numbers: range) -> list[bytes]:
        return [b"%d-%d" % (number, part) for number in numbers for part in range(3)]

    everything = [record.value async for record in client.read(topic, 0)]
    committed = [record.value async for record in client.read(topic, 0, settings=COMMITTED)]
    assert everything == values(range(6))
    assert committed == values(range(0, 6, 2))


async def test_an_open_transaction_ends_a_committed_read(
    kafka: KafkaServer, client: Client, topic: str
) -> None:
    await client.produce(topic, b"before", partition=0)
    other = OtherProducer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    await asyncio.to_thread(other.init_transactions, 30)
    await asyncio.to_thread(other.begin_transaction)
    other.produce(topic, b"open", partition=0)
    await asyncio.to_thread(other.flush, 30)

    committed = [record.value async for record in client.read(topic, 0, settings=COMMITTED)]
    everything = [record.value async for record in client.read(topic, 0)]
    await asyncio.to_thread(other.abort_transaction, 30)
    assert committed == [b"before"]
    assert everything == [b"before", b"open"]
