"""Groups: members share partitions, hand them over, and commit what they have processed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from time import monotonic
from typing import Any

import pyarrow as pa
import pytest

import rookery
from rookery.client.client import Client
from rookery.client.transactions import TransactionalWriter
from rookery.consumer.transaction import transaction
from rookery.model.partition import TopicPartition
from rookery.testing.kafka import KafkaServer
from rookery.testing.kafkalogs import NOON, Logs, rows

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
    found: list[tuple[Any, Any]] = []
    give_up = monotonic() + WITHIN
    while not done():
        assert monotonic() < give_up, [owned(one) for one in streams]
        for stream in streams:
            batch = stream.poll(50)
            if batch is not None:
                pairs = zip(
                    batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True
                )
                found += list(pairs)
                batch.commit()
    return found


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


def test_a_member_goes_on_where_the_group_has_committed(topics: Logs) -> None:
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


@pytest.mark.parametrize("is_committed", [True, False])
async def test_offsets_count_with_the_transaction(
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
    return copied, {place: one.offset for place, one in committed.items()}


def _stop_unless(is_committed: bool) -> None:
    if not is_committed:
        raise _Stop


class _Stop(Exception):  # noqa: N818 (nothing is wrong)
    pass
