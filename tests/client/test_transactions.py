"""Transactions of whole batches, against a real Kafka and against our own broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pytest

from rookery.client.admin import NewTopic
from rookery.client.client import Client
from rookery.client.fetch import FetchSettings, Isolation
from rookery.client.produce.transactions import TooLarge, TransactionalWriter
from rookery.errors import ApiError, ErrorCode
from rookery.model.partition import TopicPartition
from rookery.records.compression import CODECS
from rookery.testing.broker import BrokerProcess


def _rows(start: int, count: int = 100) -> pa.RecordBatch:
    numbers = range(start, start + count)
    return pa.record_batch(
        {"key": [b"k%d" % n for n in numbers], "value": [b"v%d" % n for n in numbers]}
    )


def _values(start: int, count: int = 100) -> list[bytes]:
    return [b"v%d" % n for n in range(start, start + count)]


@pytest.fixture(params=["kafka", "rookery"])
async def server(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[Client, TopicPartition]]:
    """A client of one or the other, and a partition of a topic of its own."""
    place = TopicPartition(f"{request.node.name[:20]}-{request.param}".replace("[", "-"), 1)
    if request.param == "kafka":
        kafka = request.getfixturevalue("kafka")
        async with Client(kafka.bootstrap) as client:
            await client.create_topic(place.topic, 2)
            yield client, place
        return
    with BrokerProcess(tmp_path / "data") as broker:
        async with Client(broker.bootstrap) as client:
            await client.create_topic(place.topic, 2)
            yield client, place


async def _committed(client: Client, place: TopicPartition, count: int) -> list[bytes | None]:
    """Read until a given number of records are there: a commit takes a while to show."""
    settings = FetchSettings(isolation=Isolation.READ_COMMITTED)
    values: list[bytes | None] = []
    records = client.read(place.topic, place.partition, follow=True, settings=settings)
    async for record in records:
        values.append(record.value)
        if len(values) == count:
            break
    await records.aclose()
    return values


async def test_committed_records_are_read_and_aborted_ones_are_not(
    server: tuple[Client, TopicPartition],
) -> None:
    client, place = server
    zstd = next(codec for codec in CODECS.values() if codec.name == "zstd")
    writer = TransactionalWriter(client, f"id-{place.topic}", codec=zstd, max_batch_bytes=1000)
    await writer.start()

    for start, is_kept in ((0, True), (100, False), (200, True)):
        await writer.begin([place])
        written = await writer.write(place, _rows(start))
        assert sum(batch.records for batch in written) == 100
        assert len(written) > 1
        await (writer.commit() if is_kept else writer.abort())

    assert await _committed(client, place, 200) == _values(0) + _values(200)


async def test_restarted_writer_fences_its_predecessor_and_aborts_its_transaction(
    server: tuple[Client, TopicPartition],
) -> None:
    client, place = server
    old = TransactionalWriter(client, f"life-{place.topic}")
    await old.start()
    await old.begin([place])
    await old.write(place, _rows(0))

    new = TransactionalWriter(client, f"life-{place.topic}")
    await new.start()
    with pytest.raises(ApiError) as refusal:
        await old.commit()
    await new.begin([place])
    await new.write(place, _rows(500))
    await new.commit()

    assert refusal.value.code in {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
    assert await _committed(client, place, 100) == _values(500)


async def test_writes_without_a_transactional_id_are_visible_immediately(
    server: tuple[Client, TopicPartition],
) -> None:
    client, place = server
    writer = TransactionalWriter(client, None)
    await writer.start()

    await writer.begin([place])
    [first] = await writer.write(place, _rows(0))
    [second] = await writer.write(place, _rows(100))
    await writer.abort()

    assert (first.base_offset, second.base_offset) == (0, 100)
    assert await _committed(client, place, 200) == _values(0, 200)


async def test_a_large_record_has_a_batch_of_its_own(
    server: tuple[Client, TopicPartition],
) -> None:
    client, place = server
    zstd = next(codec for codec in CODECS.values() if codec.name == "zstd")
    writer = TransactionalWriter(client, f"large-{place.topic}", codec=zstd)
    await writer.start()
    values = [b"a", bytes(1_020_000), b"b", b"c", bytes(3_000_000)]

    await writer.begin([place])
    written = await writer.write(place, pa.record_batch({"value": values}))
    await writer.commit()

    assert [batch.records for batch in written] == [1, 1, 2, 1]
    assert await _committed(client, place, 5) == values


async def test_batches_shrink_to_the_limit_of_the_topic(
    server: tuple[Client, TopicPartition],
) -> None:
    client, place = server
    topic = f"small-{place.topic}"
    configs = {"max.message.bytes": "20000"}
    await client.admin.create_topics([NewTopic(name=topic, partitions=2, configs=configs)])
    place = TopicPartition(topic, 1)
    writer = TransactionalWriter(client, f"small-{place.topic}")
    await writer.start()
    values = [b"%05d" % n + bytes(n % 1000) for n in range(500)]

    await writer.begin([place])
    written = await writer.write(place, pa.record_batch({"value": values}))
    await writer.commit()

    assert sum(batch.records for batch in written) == 500
    assert 6 < len(written) < 40
    assert await _committed(client, place, 500) == values


async def test_oversized_row_is_named(
    server: tuple[Client, TopicPartition],
) -> None:
    client, place = server
    writer = TransactionalWriter(client, f"over-{place.topic}")
    await writer.start()

    for size in (2_000_000, 64 << 20):  # for the topic, and for anyone
        await writer.begin([place])
        with pytest.raises(TooLarge) as refusal:
            await writer.write(place, pa.table({"value": [*_values(0), bytes(size), b"more"]}))
        await writer.abort()
        assert refusal.value.row == 100
