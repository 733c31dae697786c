"""Groups: members share partitions, hand them over, and commit what they have processed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from time import monotonic
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

import rookery
from rookery.client.client import Client
from rookery.client.produce.transactions import TransactionalWriter
from rookery.consumer.batchtransaction import transaction
from rookery.consumer.output.batch import Batch
from rookery.errors import ApiError, ErrorCode
from rookery.model.partition import TopicPartition
from rookery.testing.kafka import KafkaServer
from rookery.testing.kafkalogs import NOON, Logs, rows
from rookery.testing.wait import wait_until

WITHIN = 120.0
QUICK = timedelta(milliseconds=100)


def member(topics: Logs, topic: str, group: str, **options: Any) -> rookery.OrderedStream:
    return rookery.follow(
        topics.bootstrap, topic, start="earliest", group=group, max_idle=QUICK, **options
    )


def owned(stream: rookery.OrderedStream) -> set[int]:
    """Return the partitions that a member reads at the moment."""
    opened = stream._get()
    return {place.partition for place in list(opened.shelves.by_place)}


def until(streams: list[rookery.OrderedStream], done: Any) -> list[tuple[int, int]]:
    """Read from all streams, committing each batch, until `done` says so."""
    pairs_read: list[tuple[Any, Any]] = []

    def is_done() -> bool:
        if done():
            return True
        for stream in streams:
            batch = stream.poll(50)
            if batch is not None:
                pairs_read.extend(
                    zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
                )
                batch.commit()
        return False

    wait_until(is_done, seconds=WITHIN, pause=0.0 if streams else 0.01)
    return pairs_read


def test_partitions_move_between_members(topics: Logs) -> None:
    topic, group = topics.create("shared", 4), "sharers"
    for partition in range(4):
        topics.write(topic, partition, rows([NOON + n for n in range(10)]))

    with member(topics, topic, group) as first:
        seen = until([first], lambda: owned(first) == {0, 1, 2, 3} and first.is_live)
        with member(topics, topic, group) as second:
            seen += until(
                [first, second], lambda: len(owned(first)) == 2 and len(owned(second)) == 2
            )
            assert owned(first) | owned(second) == {0, 1, 2, 3}
            for partition in range(4):
                topics.write(topic, partition, rows([NOON + 100]))
            later: list[tuple[int, int]] = []
            while len(later) < 4:
                later += until([first, second], lambda: True) or until([first, second], _once())
        seen += later
        until([first], lambda: owned(first) == {0, 1, 2, 3})

    assert sorted(set(seen)) == [(p, o) for p in range(4) for o in range(11)]
    assert len(seen) == 44  # all was committed before it moved


def _once() -> Any:
    turns = iter([False, True])
    return lambda: next(turns)


def test_member_resumes_at_the_committed_offset(topics: Logs) -> None:
    topic, group = topics.create("goes-on", 1), "ongoing"
    topics.write(topic, 0, rows([NOON + n for n in range(10)]))

    with member(topics, topic, group, batch_rows=4) as stream:
        first = stream.poll(60_000)
        assert first is not None
        first.commit()
        stream.poll(1000)  # not committed
    with member(topics, topic, group, batch_rows=4) as stream:
        second = stream.poll(60_000)

    assert first["offset"].to_pylist() == [0, 1, 2, 3]
    assert second is not None
    assert second["offset"].to_pylist() == [4, 5, 6, 7]


def test_commit_records_rows_released_out_of_offset_order(topics: Logs) -> None:
    topic = topics.create("passed", 2)
    topics.write(topic, 0, rows([NOON + 1000 * n for n in (5, 1, 9, 2, 12, 4, 20)]))
    topics.write(topic, 1, rows([NOON + 1000 * n for n in (3, 6, 8, 21)]))

    def read(**options: Any) -> rookery.OrderedStream:
        return rookery.read(
            topics.bootstrap, topic, lateness=timedelta(seconds=6), batch_rows=1, **options
        )

    whole = places(read())
    for count in range(1, len(whole)):
        group = f"passed-{topic}-{count}"
        with read(group=group) as stream:
            batches = [next(stream) for _ in range(count)]
            batches[-1].commit()
        assert places(read(group=group, start="committed")) == whole[count:], count


def places(stream: rookery.OrderedStream) -> list[tuple[Any, Any]]:
    """Read to the end; return where rows come from."""
    table = stream.to_table()
    return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_added_partition_is_read_from_its_start(topics: Logs, protocol: Any) -> None:
    topic = topics.create("added", 1)
    admin = AdminClient({"bootstrap.servers": topics.bootstrap})

    with rookery.follow(
        topics.bootstrap,
        topic,
        group=topic,
        group_protocol=protocol,
        max_idle=QUICK,
        discover=QUICK,
    ) as stream:
        until([], lambda: owned(stream) == {0})
        for future in admin.create_partitions([NewPartitions(topic, 2)]).values():
            future.result(60)
        topics._find_leaders(topic, 2)
        topics.write(topic, 1, rows([NOON, NOON + 1]))
        read = until([stream], lambda: committed(topics, topic).get(1) == 2)

    assert read == [(1, 0), (1, 1)]


def moved(topics: Logs, topic: str, group: str, first: rookery.OrderedStream) -> int:
    """Have another member read a partition to its end and leave again; return which it was."""
    with member(topics, topic, group) as second:
        until([], lambda: len(owned(first)) == len(owned(second)) == 1)
        [partition] = owned(second)
        until([second], lambda: second.is_live)
    until([], lambda: owned(first) == {0, 1})
    return partition


def committed(topics: Logs, group: str) -> dict[int, int]:
    """Return the offsets of a group by partition."""

    async def ask() -> dict[int, int]:
        async with Client(topics.bootstrap) as client:
            offsets = await client.groups.committed_offsets(group)
        return {place.partition: offset.offset for place, offset in offsets.items()}

    return asyncio.run(ask())


def test_commit_of_a_batch_from_before_a_rebalance_does_not_move_offsets_back(topics: Logs) -> None:
    topic, group = topics.create("put-back", 2), "put-back"
    for partition in range(2):
        topics.write(topic, partition, rows([NOON + n for n in range(10)]))

    with member(topics, topic, group, batch_rows=4) as first:
        stale = first.poll(60_000)
        assert stale is not None
        partition = moved(topics, topic, group, first)
        before = committed(topics, group)
        stale.commit()

    assert before == {partition: 10}
    assert committed(topics, group) == {partition: 10, 1 - partition: 2}


def test_processed_rows_can_be_committed_when_partitions_are_revoked(topics: Logs) -> None:
    topic, group = topics.create("hand-over", 2), "hand-over"
    for partition in range(2):
        topics.write(topic, partition, rows([NOON + n for n in range(10)]))
    processed: list[Batch] = []
    told: list[tuple[str, list[int]]] = []

    def on_revoked(places: Sequence[TopicPartition]) -> None:
        told.append(("taken", [place.partition for place in places]))
        processed[-1].commit()

    def on_assigned(places: Sequence[TopicPartition]) -> None:
        told.append(("given", [place.partition for place in places]))

    with member(
        topics, topic, group, on_assigned=on_assigned, on_revoked=on_revoked, batch_rows=4
    ) as first:
        for _ in range(2):
            batch = first.poll(60_000)
            assert batch is not None
            processed.append(batch)
        with member(topics, topic, group) as second:
            until([], lambda: len(owned(second)) == 1)
            [partition] = owned(second)
            rest = until([second], lambda: second.is_live)

    assert told == [("given", [0, 1]), ("taken", [partition])]
    # Four rows of each were processed, and go to no other member.
    assert rest == [(partition, offset) for offset in range(4, 10)]


def test_exception_in_a_callback_is_raised_to_the_reader(topics: Logs) -> None:
    topic = topics.create("callback", 1)

    def on_assigned(_: object) -> None:
        raise LookupError("no table for it")

    with member(topics, topic, "callback", on_assigned=on_assigned) as stream:
        until([], lambda: owned(stream) == {0})
        with pytest.raises(LookupError, match="no table"):
            stream.poll(60_000)


async def test_transaction_from_before_a_rebalance_is_refused(topics: Logs) -> None:
    topic = await asyncio.to_thread(topics.create, "fenced", 2)
    sink = await asyncio.to_thread(topics.create, "fenced-sink", 1)
    for partition in range(2):
        data = rows([NOON + n for n in range(10)])
        await asyncio.to_thread(topics.write, topic, partition, data)
    place = TopicPartition(sink, 0)

    async with Client(topics.bootstrap) as client:
        writer = TransactionalWriter(client, "fenced")
        await writer.start()
        async with member(topics, topic, "fenced", batch_rows=4) as stream:
            batch = await anext(stream)
            partition = await asyncio.to_thread(moved, topics, topic, "fenced", stream)
            with pytest.raises(ApiError, match=f"has taken {topic}-{partition}") as caught:
                async with transaction(writer, batch, [place]):
                    await writer.write(place, pa.table({"value": batch["value"]}))
        copied, offsets = await _outcome(client, sink, "fenced")

    assert caught.value.code is ErrorCode.ILLEGAL_GENERATION
    assert copied == 0
    assert offsets == {TopicPartition(topic, partition): 10}


@pytest.mark.parametrize("is_committed", [True, False])
async def test_offsets_are_committed_with_the_transaction(
    topics: Logs, kafka: KafkaServer, *, is_committed: bool
) -> None:
    topic = await asyncio.to_thread(topics.create, "source", 1)
    sink = await asyncio.to_thread(topics.create, "sink", 1)
    await asyncio.to_thread(topics.write, topic, 0, rows([NOON + n for n in range(10)]))
    group = f"exactly-{is_committed}"
    place = TopicPartition(sink, 0)

    async with Client(kafka.bootstrap) as client:
        writer = TransactionalWriter(client, f"copy-{is_committed}")
        await writer.start()
        stream = rookery.read(kafka.bootstrap, topic, start="committed", group=group, batch_rows=4)
        async with stream:
            batch = await anext(stream)
            try:
                async with transaction(writer, batch, [place]):
                    await writer.write(place, pa.table({"value": batch["value"]}))
                    _stop_unless(is_committed)
            except _Stop:
                pass
        # The markers of a transaction are written after its end was answered.
        copied, offsets, give_up = 0, dict[TopicPartition, int](), monotonic() + WITHIN
        while is_committed and (copied < 4 or not offsets) and monotonic() < give_up:
            copied, offsets = await _outcome(client, sink, group)
        copied, offsets = await _outcome(client, sink, group)

    assert copied == (4 if is_committed else 0)
    assert offsets == ({TopicPartition(topic, 0): 4} if is_committed else {})


async def _outcome(client: Client, sink: str, group: str) -> tuple[int, dict[TopicPartition, int]]:
    stream = rookery.read(client.settings.bootstrap, sink)
    copied = (await asyncio.to_thread(stream.to_table)).num_rows
    committed = await client.groups.committed_offsets(group, stable=True)
    return copied, {place: offset.offset for place, offset in committed.items()}


def _stop_unless(is_committed: bool) -> None:
    if not is_committed:
        raise _Stop


class _Stop(Exception):  # noqa: N818 (nothing is wrong)
    pass
