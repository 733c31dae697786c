"""Fetch: limits, waiting, what is refused, and what comes from disk."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assigned
from kafka import TopicPartition as PythonPartition

from rookery.broker.fetchplan import EXAMINED
from rookery.broker.settings import BrokerSettings
from rookery.cluster.entry import Entry
from rookery.cluster.events.topicevents import LogStartMoved, TopicDeleted
from rookery.cluster.state.state import EntryOutcome
from rookery.errors import ErrorCode
from rookery.records import batches, recordcodec
from rookery.records.compression import CODECS
from rookery.records.recordcodec import BatchSettings
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.wait import PATIENCE_SECONDS
from rookery.testing.wire import Peer
from rookery.wire.codec import request_frame
from rookery.wire.messages.fetch import FETCH, ReplicaState
from rookery.wire.messages.produce import PRODUCE
from tests.broker.raw import (
    MEBIBYTE,
    Raw,
    batch,
    bytes_of,
    create,
    fetch_request,
    forget_tail,
    produce_request,
    raw,
    until_examined,
    until_waiting,
)
from tests.kafkapython import KafkaConsumer

# Longer than any test is patient: an answer that comes has not waited for its time to be over.
WAIT_MS = 600_000


@pytest.fixture
def topic(served: ServedBroker, request: pytest.FixtureRequest) -> str:
    name = "".join(character if character.isalnum() else "-" for character in request.node.name)
    create(served, name, 3)
    return name


def offsets_of(data: bytes) -> list[int]:
    return [record.offset for record in recordcodec.read_all(data)]


@pytest.mark.parametrize("version", range(4, 19))
async def test_every_version_returns_the_written_records(
    served: ServedBroker, topic: str, version: int
) -> None:
    topic_id = served.broker.replica.state.topics.by_name[topic].id
    async with raw(served) as client:
        await client.produce(topic, batch(b"a", b"b"))
        options: dict[str, Any] = {"topic_ids": {topic: topic_id}, "isolation_level": version % 2}
        answer = await client.fetch(topic, 0, version=version, **options)
    assert offsets_of(bytes_of(answer)) == [0, 1]
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 2, 2)
    assert answer.log_start_offset == (0 if version >= 5 else -1)
    assert answer.preferred_read_replica == -1
    assert answer.diverging_epoch is None
    assert answer.aborted_transactions == ([] if version % 2 else None)


async def test_fetch_without_partitions_is_answered_immediately(served: ServedBroker) -> None:
    async with raw(served) as client:
        response = await client.fetch_all({}, version=16, max_wait_ms=WAIT_MS)
    assert (response.throttle_time_ms, response.error_code, response.responses) == (0, 0, [])


async def test_an_empty_partition_has_no_error(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        answer = await client.fetch(topic, 0)
    assert (answer.error_code, answer.high_watermark, bytes_of(answer)) == (0, 0, b"")


async def test_unknown_topics_and_partitions_are_reported(served: ServedBroker, topic: str) -> None:
    topic_id = served.broker.replica.state.topics.by_name[topic].id
    async with raw(served) as client:
        answer = await client.fetch("no-such-topic", 0, max_wait_ms=WAIT_MS)
        assert answer.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer = await client.fetch(topic, 0, partition=7, max_wait_ms=WAIT_MS)
        assert answer.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer = await client.fetch(
            topic, 0, version=16, topic_ids={topic: b"x" * 16}, max_wait_ms=WAIT_MS
        )
        assert answer.error_code is ErrorCode.UNKNOWN_TOPIC_ID
        answer = await client.fetch(
            topic, 0, partition=7, version=16, topic_ids={topic: topic_id}, max_wait_ms=WAIT_MS
        )
        assert answer.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("is_cold", [False, True])
async def test_first_batch_is_returned_whole_beyond_the_limits(
    served: ServedBroker, topic: str, is_cold: bool
) -> None:
    large = batch(b"x" * 300_000)
    async with raw(served) as client:
        for partition in range(3):
            for _ in range(2):
                await client.produce(topic, large, partition=partition)
        if is_cold:
            forget_tail(served)
        offsets = {(topic, partition): 0 for partition in range(3)}
        for limits in (
            {"partition_max_bytes": 100_000},
            {"max_bytes": 1},
            {"partition_max_bytes": 1, "max_bytes": 1},
            {"max_bytes": 0},
        ):
            response = await client.fetch_all(offsets, **limits)
            sizes = [len(bytes_of(part)) for part in response.responses[0].partitions]
            assert sizes == [len(large), 0, 0]


@pytest.mark.parametrize("is_cold", [False, True])
async def test_limits_apply_to_batches_after_the_first(
    served: ServedBroker, topic: str, is_cold: bool
) -> None:
    data = batch(b"x" * 10_000)
    size = len(data)
    async with raw(served) as client:
        for partition in range(3):
            for _ in range(20):
                await client.produce(topic, data, partition=partition)
        if is_cold:
            forget_tail(served)
        offsets = {(topic, partition): 0 for partition in range(3)}

        async def counts(**limits: int) -> list[int]:
            response = await client.fetch_all(offsets, **limits)
            parts = response.responses[0].partitions
            return [len(bytes_of(part)) // size for part in parts]

        assert await counts(partition_max_bytes=5 * size) == [5, 5, 5]
        assert await counts(partition_max_bytes=5 * size + size - 1) == [5, 5, 5]
        assert await counts(max_bytes=7 * size, partition_max_bytes=5 * size) == [5, 2, 0]
        assert await counts(max_bytes=7 * size) == [7, 0, 0]


@pytest.mark.parametrize("is_cold", [False, True])
async def test_oversized_first_batch_counts_against_the_limit_of_the_request(
    served: ServedBroker, topic: str, is_cold: bool
) -> None:
    large, small = batch(b"x" * 300_000), batch(b"x" * 10_000)
    async with raw(served) as client:
        await client.produce(topic, large)
        for partition in (1, 2):
            for _ in range(20):
                await client.produce(topic, small, partition=partition)
        if is_cold:
            forget_tail(served)
        offsets = {(topic, partition): 0 for partition in range(3)}
        response = await client.fetch_all(
            offsets, partition_max_bytes=100_000, max_bytes=len(large) + 5 * len(small)
        )
        sizes = [len(bytes_of(part)) for part in response.responses[0].partitions]

    assert sizes == [len(large), 5 * len(small), 0]


@pytest.mark.parametrize("is_cold", [False, True])
async def test_sixty_batches_of_30_kb_are_all_read(
    served: ServedBroker, topic: str, is_cold: bool
) -> None:
    async with raw(served) as client:
        for _ in range(60):
            await client.produce(topic, batch(b"x" * 30_000))
        if is_cold:
            forget_tail(served)
        offset, rounds = 0, 0
        while offset < 60:
            offsets = offsets_of(bytes_of(await client.fetch(topic, offset)))
            assert offsets[0] == offset
            offset, rounds = offsets[-1] + 1, rounds + 1
    assert rounds == 2


@pytest.mark.parametrize("is_cold", [False, True])
async def test_an_offset_within_a_batch_returns_that_batch(
    served: ServedBroker, topic: str, is_cold: bool
) -> None:
    async with raw(served) as client:
        for _ in range(3):
            await client.produce(topic, batch(*[b"v"] * 10))
        if is_cold:
            forget_tail(served)
        for offset in (0, 9, 10, 15, 29):
            answer = await client.fetch(topic, offset, partition_max_bytes=1)
            assert offsets_of(bytes_of(answer)) == list(
                range(offset // 10 * 10, offset // 10 * 10 + 10)
            )


async def test_memory_and_disk_return_the_same_bytes(served: ServedBroker, topic: str) -> None:
    small = [batch(b"v%d" % n, settings=BatchSettings(producer_id=-1)) for n in range(300)]
    async with raw(served) as client:
        for data in small[:100]:
            await client.produce(topic, data)
        for data in small[100:200]:
            await client.produce(topic, data)
        await client.produce(topic, batch(b"x" * 900_000))
        for data in small[200:]:
            await client.produce(topic, data)
        warm = await _read_all(client, topic, 301)
        forget_tail(served)
        cold = await _read_all(client, topic, 301)
        for limit in (1, 5000, 100_000):
            assert await _read_all(client, topic, 301, partition_max_bytes=limit) == cold
    assert warm == cold
    assert offsets_of(warm) == list(range(301))


async def _read_all(client: Raw, topic: str, end: int, **limits: int) -> bytes:
    records, offset = b"", 0
    while offset < end:
        data = bytes_of(await client.fetch(topic, offset, **limits))
        records += data
        offset = batches.verify(data)[-1].last_offset + 1
    return records


async def test_an_offset_out_of_range_is_refused_without_watermarks(
    served: ServedBroker, topic: str
) -> None:
    topic_id = served.broker.replica.state.topics.by_name[topic].id
    async with raw(served) as client:
        await client.produce(topic, batch(*[b"v"] * 10))

        async def move() -> None:
            await served.broker.replica.propose(
                [LogStartMoved(topic_id=topic_id, partition=0, offset=4)]
            )

        await asyncio.to_thread(served.do, move())
        for offset in (3, 11, 2**62, -1):
            answer = await client.fetch(topic, offset, max_wait_ms=WAIT_MS)
            assert answer.error_code is ErrorCode.OFFSET_OUT_OF_RANGE
            assert (answer.high_watermark, answer.log_start_offset) == (-1, -1)
        assert (await client.fetch(topic, 4)).error_code is ErrorCode.NONE
        assert (await client.fetch(topic, 10)).error_code is ErrorCode.NONE


async def test_leader_epochs_are_checked(served: ServedBroker, topic: str) -> None:
    partition = served.broker.replica.state.topics.by_name[topic].partitions[0]
    async with raw(served) as client:
        await client.produce(topic, batch(b"a"))
        for epoch in (-1, partition.leader_epoch - 1, partition.leader_epoch):
            answer = await client.fetch(topic, 0, leader_epoch=max(epoch, -1))
            assert answer.error_code is ErrorCode.NONE
        answer = await client.fetch(topic, 0, leader_epoch=partition.leader_epoch + 1)
    assert answer.error_code is ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_fetch_with_a_replica_id_is_refused_as_by_a_broker_without_that_replica(
    served: ServedBroker, topic: str
) -> None:
    no_leader, no_epoch = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH
    async with raw(served) as client:
        await client.produce(topic, batch(b"a", b"b"))
        partition = served.broker.replica.state.topics.by_name[topic].partitions[0]
        for epoch, code in ((-1, no_leader), (partition.leader_epoch, no_epoch)):
            answer = await client.fetch(topic, 0, replica_id=3, leader_epoch=epoch)
            assert (answer.error_code, answer.high_watermark, answer.records) == (code, -1, b"")
        state = ReplicaState(replica_id=3, replica_epoch=1)
        topic_id = served.broker.replica.state.topics.by_name[topic].id
        answer = await client.fetch(
            topic, 1, version=17, replica_state=state, topic_ids={topic: topic_id}
        )
        assert (answer.error_code, answer.high_watermark) == (no_leader, -1)
        answer = await client.fetch(topic, 0)
        assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, 2)


async def test_fetch_waits_until_the_next_commit(served: ServedBroker, topic: str) -> None:
    async with raw(served) as reader, raw(served) as writer:
        waiting = asyncio.create_task(
            reader.fetch_all({(topic, 0): 0, (topic, 1): 0}, max_wait_ms=WAIT_MS)
        )
        await until_waiting(served, 2)
        await writer.produce(topic, batch(b"z"), partition=2)
        await writer.produce(topic, batch(b"a"), partition=1)
        response = await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    assert [len(bytes_of(partition)) > 0 for partition in response.responses[0].partitions] == [
        False,
        True,
    ]
    await until_waiting(served, 0)


async def test_min_bytes_counts_all_partitions(served: ServedBroker, topic: str) -> None:
    data = batch(b"x" * 1000)
    async with raw(served) as reader, raw(served) as writer:
        await writer.produce(topic, data, partition=0)
        offsets = {(topic, partition): 0 for partition in range(3)}
        waiting = asyncio.create_task(
            reader.fetch_all(offsets, max_wait_ms=WAIT_MS, min_bytes=4 * len(data))
        )
        await until_waiting(served, 3)
        for partition in (1, 2):
            await writer.produce(topic, data, partition=partition)
            assert not waiting.done()
        await until_waiting(served, 3)
        await writer.produce(topic, data, partition=1)
        response = await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    sizes = [len(bytes_of(part)) for part in response.responses[0].partitions]
    assert sizes == [len(data), 2 * len(data), len(data)]


async def test_max_wait_returns_the_available_records(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        await client.produce(topic, batch(b"a"))
        answer = await client.fetch(topic, 0, max_wait_ms=30, min_bytes=MEBIBYTE)
        assert offsets_of(bytes_of(answer)) == [0]
        answer = await client.fetch(topic, 1, max_wait_ms=30, min_bytes=1)
        assert (answer.error_code, bytes_of(answer)) == (0, b"")


async def test_error_ends_the_wait_for_all_partitions(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        response = await asyncio.wait_for(
            client.fetch_all({(topic, 0): 0, (topic, 1): 99}, max_wait_ms=WAIT_MS), PATIENCE_SECONDS
        )
    assert [partition.error_code for partition in response.responses[0].partitions] == [
        ErrorCode.NONE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ]


async def test_topic_deleted_during_a_wait_is_reported(served: ServedBroker, topic: str) -> None:
    topic_id = served.broker.replica.state.topics.by_name[topic].id

    async def delete() -> None:
        await served.broker.replica.propose([TopicDeleted(topic_id=topic_id)])

    async with raw(served) as client:
        waiting = asyncio.create_task(
            client.fetch(topic, 0, version=13, topic_ids={topic: topic_id}, max_wait_ms=20_000)
        )
        await until_waiting(served, 1)
        await asyncio.to_thread(served.do, delete())
        answer = await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    assert answer.error_code is ErrorCode.UNKNOWN_TOPIC_ID
    assert answer.high_watermark == -1


async def test_disconnected_client_is_removed_from_waiters(
    served: ServedBroker, topic: str
) -> None:
    request = fetch_request({(topic, 0): 0}, max_wait_ms=WAIT_MS)
    with socket.create_connection(("127.0.0.1", served.port)) as client:
        client.sendall(b"".join(request_frame(FETCH, 12, 1, None, request)))
        await until_waiting(served, 1)
        # Closed with a reset, as when a process is killed.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await until_waiting(served, 0)


async def test_completed_waits_leave_no_reference_cycles(served: ServedBroker, topic: str) -> None:
    async def fetches() -> int:
        return sum(
            type(tracked).__name__ in {"_Fetch", "FetchWait"} for tracked in gc.get_objects()
        )

    gc.collect()
    gc.disable()
    try:
        async with raw(served) as reader, raw(served) as writer:
            for offset in range(20):
                waiting = asyncio.create_task(reader.fetch(topic, offset, max_wait_ms=WAIT_MS))
                await until_waiting(served, 1)
                await writer.produce(topic, batch(b"a"))
                await asyncio.wait_for(waiting, PATIENCE_SECONDS)
            assert await asyncio.to_thread(served.do, fetches()) == 0
    finally:
        gc.enable()


async def test_many_waiting_fetches_are_all_answered(served: ServedBroker, topic: str) -> None:
    frame = b"".join(
        request_frame(FETCH, 12, 1, None, fetch_request({(topic, 0): 0}, max_wait_ms=WAIT_MS))
    )
    peers = [await Peer.connect(served.port) for _ in range(200)]
    for peer in peers:
        peer.write(frame)
    await until_waiting(served, 200)
    async with raw(served) as writer:
        await writer.produce(topic, batch(b"news"))
    answers = await asyncio.wait_for(asyncio.gather(*(peer.read_frame() for peer in peers)), 10)
    assert all(b"news" in answer for answer in answers)
    for peer in peers:
        await peer.close()


async def test_stopping_broker_answers_waiting_fetches(tmp_path: Path) -> None:
    with ServedBroker(tmp_path, BrokerSettings(durability="os")) as broker:
        create(broker, "t")
        client = await Peer.connect(broker.port)
        client.write(
            b"".join(
                request_frame(FETCH, 12, 1, None, fetch_request({("t", 0): 0}, max_wait_ms=600_000))
            )
        )
        await until_waiting(broker, 1)
    assert await asyncio.wait_for(client.read_frame(), PATIENCE_SECONDS)
    await client.close()


async def test_min_bytes_applies_to_committed_records_on_disk(
    served: ServedBroker, topic: str
) -> None:
    data = batch(b"x" * 1000)
    async with raw(served) as reader, raw(served) as writer:
        await writer.produce(topic, data)
        forget_tail(served)
        waiting = asyncio.create_task(
            reader.fetch(topic, 0, max_wait_ms=WAIT_MS, min_bytes=3 * len(data), isolation_level=1)
        )
        await until_waiting(served, 1)
        for _ in range(2):
            examined = EXAMINED.value
            await writer.produce(topic, data)
            await until_examined(served, examined + 1)
        answer = await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    assert offsets_of(bytes_of(answer)) == [0, 1, 2]


async def test_rows_deleted_before_they_are_read_are_handled(
    served: ServedBroker, topic: str
) -> None:
    data = batch(b"x" * 1000)
    replica = served.broker.replica
    partition = replica.state.topics.by_name[topic].partitions[0]
    is_armed = True

    def delete() -> None:
        partition.begin_at(partition.next_offset)

    def grown(applied: EntryOutcome, _: Entry) -> None:
        nonlocal is_armed
        if applied.grown and is_armed:
            # After the fetch has looked, before the task runs that reads what it found.
            asyncio.get_running_loop().call_soon(delete)
            is_armed = False

    async with raw(served) as reader, raw(served) as writer:
        await writer.produce(topic, data)
        forget_tail(served)
        waiting = asyncio.create_task(
            reader.fetch(topic, 0, max_wait_ms=WAIT_MS, min_bytes=2 * len(data))
        )
        await until_waiting(served, 1)
        replica.listen(grown)
        await writer.produce(topic, data)
        answer = await asyncio.wait_for(waiting, PATIENCE_SECONDS)
        assert (answer.error_code, bytes_of(answer)) == (ErrorCode.NONE, b"")
        answer = await reader.fetch(topic, 0)
        assert answer.error_code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_damaged_bytes_on_disk_are_not_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = BrokerSettings(durability="os", tail_bytes=0, cache_bytes=0)
    with ServedBroker(tmp_path, settings) as broker:
        create(broker, "t", 2)
        async with raw(broker) as client:
            await client.produce("t", batch(b"good" * 50_000), partition=0)
            await client.produce("t", batch(b"ruin" * 50_000), partition=1)
            [journal] = (tmp_path / "journal").iterdir()
            data = journal.read_bytes()
            with journal.open("r+b") as file:
                file.seek(data.index(b"ruinruin"))
                file.write(b"x")
            response = await client.fetch_all({("t", 1): 0, ("t", 0): 0})
    bad, good = response.responses[0].partitions
    assert (bad.error_code, bytes_of(bad)) == (ErrorCode.CORRUPT_MESSAGE, b"")
    assert (good.error_code, offsets_of(bytes_of(good))) == (ErrorCode.NONE, [0])
    assert "CRC" in caplog.text


async def test_reader_that_switches_to_a_lagging_broker_gets_no_offset_error(
    two: tuple[ServedBroker, ServedBroker],
) -> None:
    first, second = two
    create(first, "t")
    async with raw(first) as writer, raw(second) as reader:
        for number in range(100):
            assert (await writer.produce("t", batch(b"v"))).base_offset == number
            answer = await reader.fetch("t", number + 1)
            assert answer.error_code is ErrorCode.NONE
            assert offsets_of(bytes_of(await reader.fetch("t", number))) == [number]


async def test_a_commit_by_another_broker_ends_the_wait(
    two: tuple[ServedBroker, ServedBroker],
) -> None:
    first, second = two
    create(first, "t")
    async with raw(first) as writer, raw(second) as reader:
        await reader.fetch("t", 0)
        waiting = asyncio.create_task(reader.fetch("t", 0, max_wait_ms=WAIT_MS))
        await until_waiting(second, 1)
        await writer.produce("t", batch(b"v"))
        assert offsets_of(bytes_of(await asyncio.wait_for(waiting, PATIENCE_SECONDS))) == [0]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[ServedBroker, ServedBroker]]:
    settings = BrokerSettings(durability="os")
    with ServedBroker(tmp_path, settings) as first, ServedBroker(tmp_path, settings) as second:
        yield first, second


def _mixed(served: ServedBroker, topic: str) -> list[bytes]:
    """Write batches of every codec and size; return the values in order."""
    values: list[bytes] = []

    async def write() -> None:
        async with raw(served) as client:
            for number, codec in enumerate([*CODECS.values()] * 8):
                own = [b"%d-%d" % (number, n) * (1 + number * 20) for n in range(number * 3 + 1)]
                data = batch(*own, settings=BatchSettings(codec=codec))
                await client.ask(PRODUCE, 9, produce_request(topic, {0: data}))
                values.extend(own)

    asyncio.run(write())
    return values


@pytest.mark.parametrize("is_cold", [False, True])
def test_real_clients_read_every_codec(served: ServedBroker, topic: str, is_cold: bool) -> None:
    values = _mixed(served, topic)
    if is_cold:
        forget_tail(served)
    consumer = Consumer(
        {"bootstrap.servers": served.bootstrap, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([Assigned(topic, 0, 0)])
    received: list[bytes] = []
    while len(received) < len(values):
        message = consumer.poll(10)
        assert message is not None
        assert message.error() is None
        value = message.value()
        assert isinstance(value, bytes)
        received.append(value)
    consumer.close()
    assert received == values
    python = KafkaConsumer(bootstrap_servers=served.bootstrap, consumer_timeout_ms=10_000)
    python.assign([PythonPartition(topic, 0)])
    python.seek(PythonPartition(topic, 0), 0)
    try:
        assert [next(python).value for _ in values] == values
    finally:
        python.close()


async def test_aiokafka_reads_and_waits(served: ServedBroker, topic: str) -> None:
    values = await asyncio.to_thread(_mixed, served, topic)
    consumer = AIOKafkaConsumer(bootstrap_servers=served.bootstrap)
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        received = [(await asyncio.wait_for(consumer.getone(), 10)).value for _ in values]
        assert received == values
        async with raw(served) as client:
            await client.produce(topic, batch(b"late"))
        assert (await asyncio.wait_for(consumer.getone(), 10)).value == b"late"
    finally:
        await consumer.stop()
