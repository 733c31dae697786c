"""ListOffsets and OffsetForLeaderEpoch: ends, times and epochs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from rookery.broker.settings import BrokerSettings
from rookery.cluster.events.topicevents import LogStartMoved
from rookery.errors import ErrorCode
from rookery.records.batches import check_fetched, parse, restamp_into
from rookery.records.compression import CODECS, find_codec
from rookery.records.recordcodec import BatchSettings, Record, build
from rookery.testing.servedbroker import ServedBroker
from rookery.wire.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from rookery.wire.messages.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.offsets import find
from tests.broker.raw import Raw, batch, bytes_of, create, forget_tail, raw

BEGIN = 1_700_000_000_000
LATEST, EARLIEST, MAX, LOCAL, TIERED, PENDING = -1, -2, -3, -4, -5, -6


@pytest.fixture
def topic(served: ServedBroker, request: pytest.FixtureRequest) -> str:
    name = "".join(character if character.isalnum() else "-" for character in request.node.name)
    create(served, name, 2)
    return name


def timed(*times: int, codec: str = "none") -> bytes:
    records = [Record(b"k", b"v", (), BEGIN + time) for time in times]
    return build(records, BatchSettings(codec=find_codec(codec)))


def move(served: ServedBroker, topic: str, offset: int) -> None:
    topic_id = served.broker.replica.state.topics.by_name[topic].id

    async def propose() -> None:
        event = LogStartMoved(topic_id=topic_id, partition=0, offset=offset)
        await served.broker.replica.propose([event])

    served.do(propose())


@pytest.mark.parametrize("version", range(1, 12))
async def test_start_and_end_offsets_are_listed(
    served: ServedBroker, topic: str, version: int
) -> None:
    async with raw(served) as client:
        await client.produce(topic, batch(*[b"v"] * 10))
        move(served, topic, 3)
        start, end = await find(client, topic, EARLIEST, LATEST, version=version)
        assert [start.offset, end.offset] == [3, 10]
        assert [start.timestamp, end.timestamp] == [-1, -1]
        assert start.leader_epoch == (0 if version >= 4 else -1)
        empty = await find(client, topic, EARLIEST, LATEST, MAX, 0, partition=1)
        assert [place.offset for place in empty] == [0, 0, -1, -1]


async def test_special_times_need_their_version(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        await client.produce(topic, timed(5, 9, 7))
        for time_ms, since, offset in [
            (MAX, 7, 1),
            (LOCAL, 8, 0),
            (TIERED, 9, -1),
            (PENDING, 11, -1),
        ]:
            [old] = await find(client, topic, time_ms, version=since - 1)
            assert old.error_code is ErrorCode.UNSUPPORTED_VERSION
            [new] = await find(client, topic, time_ms, version=since)
            assert (new.error_code, new.offset) == (ErrorCode.NONE, offset)
        [bad] = await find(client, topic, -7)
        assert bad.error_code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_missing_max_timestamp_is_computed(
    served: ServedBroker, topic: str, codec: str
) -> None:
    whole = timed(5, 9, 7, codec=codec)
    bare = bytearray(whole)
    restamp_into(bare, parse(whole)._replace(max_timestamp=-1))
    async with raw(served) as client:
        await client.produce(topic, timed(1))
        await client.produce(topic, bytes(bare))
        places = await find(client, topic, BEGIN + 6, BEGIN + 10, MAX)
        [kept] = check_fetched(bytes_of(await client.fetch(topic, 1)))
    assert [place.offset for place in places] == [2, -1, 2]
    assert kept.max_timestamp == BEGIN + 9


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("codec", [codec.name for codec in CODECS.values()])
async def test_first_record_at_or_after_a_time_is_found(
    served: ServedBroker, topic: str, codec: str, is_cold: bool
) -> None:
    async with raw(served) as client:
        await client.produce(topic, timed(10, 20, 30, codec=codec))
        # Times go back and forth, as producers' clocks do.
        await client.produce(topic, timed(25, 15, 40, codec=codec))
        await client.produce(topic, timed(*range(41, 1000), codec=codec))
        if is_cold:
            forget_tail(served)
        for time_ms, expected in [
            (0, (0, 10)),
            (10, (0, 10)),
            (11, (1, 20)),
            (30, (2, 30)),
            (31, (5, 40)),
            (41, (6, 41)),
            (500, (465, 500)),
            (999, (964, 999)),
        ]:
            [place] = await find(client, topic, BEGIN + time_ms)
            assert (place.offset, place.timestamp - BEGIN) == expected
            assert place.leader_epoch == 0
        [none] = await find(client, topic, BEGIN + 1000)
        assert (none.error_code, none.offset, none.timestamp) == (ErrorCode.NONE, -1, -1)
        [highest] = await find(client, topic, MAX)
        assert (highest.offset, highest.timestamp - BEGIN) == (964, 999)


async def test_records_before_the_log_start_are_not_found(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        await client.produce(topic, timed(90, 20, 30, 80))
        await client.produce(topic, timed(50))
        move(served, topic, 1)
        [place] = await find(client, topic, BEGIN)
        assert (place.offset, place.timestamp - BEGIN) == (1, 20)
        [highest] = await find(client, topic, MAX)
        assert (highest.offset, highest.timestamp - BEGIN) == (3, 80)
        assert (await find(client, topic, BEGIN + 85))[0].offset == -1
        move(served, topic, 5)
        gone = await find(client, topic, BEGIN, MAX)
        assert [part.offset for part in gone] == [-1, -1]


async def test_append_time_applies_to_all_records_of_a_batch(
    served: ServedBroker, topic: str
) -> None:
    name = topic + "-stamped"
    create(served, name, 1, {"message.timestamp.type": "LogAppendTime"})
    async with raw(served) as client:
        answer = await client.produce(name, timed(1, 2, 3))
        stamp = answer.log_append_time_ms
        for time_ms in (0, stamp):
            [place] = await find(client, name, time_ms)
            assert (place.offset, place.timestamp) == (0, stamp)
        assert (await find(client, name, stamp + 1))[0].offset == -1


async def test_invalid_requests_are_refused(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        [bad] = await find(client, "no-such-topic", LATEST)
        assert bad.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        [bad] = await find(client, topic, LATEST, partition=2)
        assert bad.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        [bad] = await find(client, topic, LATEST, epoch=5)
        assert bad.error_code is ErrorCode.UNKNOWN_LEADER_EPOCH
        part = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        other = ListOffsetsPartition(partition_index=1, timestamp=LATEST)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[part, part, other])]
        )
        response = await client.ask(LIST_OFFSETS, 5, request)
    assert [partition.error_code for partition in response.topics[0].partitions] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]


async def test_end_offset_is_the_same_on_all_brokers(tmp_path: Path) -> None:
    settings = BrokerSettings(durability="os")
    with ServedBroker(tmp_path, settings) as first, ServedBroker(tmp_path, settings) as second:
        create(first, "t")
        async with raw(first) as writer, raw(second) as reader:
            for number in range(50):
                await writer.produce("t", batch(b"v"))
                [end] = await find(reader, "t", LATEST)
                assert end.offset == number + 1


def test_librdkafka_finds_offsets_by_time(served: ServedBroker, topic: str) -> None:
    async def write() -> None:
        async with raw(served) as client:
            await client.produce(topic, timed(10, 20, 30))

    asyncio.run(write())
    consumer = Consumer({"bootstrap.servers": served.bootstrap, "group.id": "g"})
    [place] = consumer.offsets_for_times([TopicPartition(topic, 0, BEGIN + 15)], timeout=10)
    assert place.offset == 1
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 3)
    consumer.close()


async def end_of(client: Raw, epoch: int, *, current: int = -1, version: int = 4) -> EpochEndOffset:
    part = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[part])]
    )
    response = await client.ask(OFFSET_FOR_LEADER_EPOCH, version, request)
    return response.topics[0].partitions[0]


async def test_epochs_end_where_the_next_one_starts(tmp_path: Path) -> None:
    settings = BrokerSettings(durability="os")
    with ServedBroker(tmp_path, settings) as broker:
        create(broker, "t")
        async with raw(broker) as client:
            await client.produce("t", batch(b"a", b"b"))
    # The leader leaves and returns: two new epochs, the first of them without records.
    with ServedBroker(tmp_path, settings) as broker:
        partition = broker.broker.replica.state.topics.by_name["t"].partitions[0]
        now = partition.leader_epoch
        assert now > 0
        async with raw(broker) as client:
            await client.produce("t", batch(b"c"))
            for version in (2, 3, 4):
                ends = [await end_of(client, epoch, version=version) for epoch in range(now + 1)]
                # No reader's position is after the end of the epoch it was read in.
                assert [end.end_offset for end in ends] == [2] * now + [3]
                assert [end.error_code for end in ends] == [ErrorCode.NONE] * (now + 1)
            ahead = await end_of(client, now + 5)
            assert (ahead.end_offset, ahead.leader_epoch) == (3, now)
            unknown = await end_of(client, now, current=now + 1)
            assert unknown.error_code is ErrorCode.UNKNOWN_LEADER_EPOCH
            old = await end_of(client, 0, current=0)
            assert (old.error_code, old.leader_epoch, old.end_offset) == (ErrorCode.NONE, 0, 2)
