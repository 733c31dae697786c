"""DeleteRecords moves the start of the log, durably and for all clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from rookery.broker.settings import BrokerSettings
from rookery.errors import ErrorCode
from rookery.records import recordcodec
from rookery.testing.servedbroker import ServedBroker
from rookery.wire.messages.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.broker.offsets import delete
from tests.broker.raw import batch, bytes_of, create, raw


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


@pytest.mark.parametrize("version", range(3))
async def test_log_start_offset_moves(served: ServedBroker, topic: str, version: int) -> None:
    async with raw(served) as client:
        await client.produce(topic, batch(*[b"v"] * 10))
        assert await delete(client, topic, 4, version=version) == (ErrorCode.NONE, 4)
        # It never moves back.
        assert await delete(client, topic, 2, version=version) == (ErrorCode.NONE, 4)
        answer = await client.fetch(topic, 3)
        assert answer.error_code is ErrorCode.OFFSET_OUT_OF_RANGE
        answer = await client.fetch(topic, 4)
        assert answer.log_start_offset == 4
        # Batches are whole; the client leaves out records before its offset.
        assert [record.offset for record in recordcodec.read_all(bytes_of(answer))] == list(
            range(10)
        )
        assert await delete(client, topic, -1, version=version) == (ErrorCode.NONE, 10)
        produced = await client.produce(topic, batch(b"next"))
        assert (produced.base_offset, produced.log_start_offset) == (10, 10)


async def test_invalid_deletions_are_refused(served: ServedBroker, topic: str) -> None:
    create(served, topic + "-compacted", 1, {"cleanup.policy": "compact"})
    out_of_range = (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    async with raw(served) as client:
        await client.produce(topic, batch(b"v"))
        assert await delete(client, topic, 2) == out_of_range
        assert await delete(client, topic, -2) == out_of_range
        assert await delete(client, topic, 0, partition=2) == unknown
        assert await delete(client, "no-such-topic", 0) == unknown
        code, _ = await delete(client, topic + "-compacted", 0)
        assert code is ErrorCode.POLICY_VIOLATION
        assert (await client.fetch(topic, 0)).error_code is ErrorCode.NONE


async def test_records_of_several_partitions_are_deleted_in_one_request(
    served: ServedBroker, topic: str
) -> None:
    async with raw(served) as client:
        for partition in range(2):
            await client.produce(topic, batch(*[b"v"] * 5), partition=partition)
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(partition_index=0, offset=99),
                        DeleteRecordsPartition(partition_index=1, offset=2),
                        DeleteRecordsPartition(partition_index=0, offset=3),
                    ],
                )
            ],
            timeout_ms=10_000,
        )
        response = await client.ask(DELETE_RECORDS, 2, request)
    assert [
        (part.partition_index, part.error_code, part.low_watermark)
        for part in response.topics[0].partitions
    ] == [(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1), (1, 0, 2), (0, 0, 3)]


async def test_log_start_offset_survives_a_restart(tmp_path: Path) -> None:
    settings = BrokerSettings(durability="os")
    with ServedBroker(tmp_path, settings) as broker:
        create(broker, "t")
        async with raw(broker) as client:
            await client.produce("t", batch(*[b"v"] * 10))
            await delete(client, "t", 7)
    with ServedBroker(tmp_path, settings) as broker:
        async with raw(broker) as client:
            answer = await client.fetch("t", 6)
            assert answer.error_code is ErrorCode.OFFSET_OUT_OF_RANGE
            assert (await client.fetch("t", 7)).log_start_offset == 7


def test_librdkafka_deletes_records(served: ServedBroker, topic: str) -> None:
    async def write() -> None:
        async with raw(served) as client:
            await client.produce(topic, batch(*[b"v"] * 10))

    asyncio.run(write())
    admin = AdminClient({"bootstrap.servers": served.bootstrap})
    [future] = admin.delete_records([TopicPartition(topic, 0, 6)]).values()
    assert future.result(10).low_watermark == 6
