"""Lag of groups as metrics: right, bounded, removed with the offsets, and without a stall."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from rookery.broker.groups.lag import LAG, OMITTED, GroupLag
from rookery.cluster.events.groupevents import GroupDeleted, OffsetCommitted, OffsetsCommitted
from rookery.cluster.events.logevents import BatchesCommitted, Extent
from rookery.cluster.events.topicevents import TopicCreated
from rookery.testing.clock import ManualClock
from tests.broker.groups.upkeep import Site, classic_body, site

TOPIC = bytes(range(16))


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"memory:{request.node.nodeid}"


@pytest.fixture(autouse=True)
def clean_metrics() -> Iterator[None]:
    """Leave no samples to other tests: metrics are those of the process."""
    yield
    for key in list(LAG._children):
        LAG.remove(*key)


class TickingClock(ManualClock):
    """A clock on which a millisecond passes with every look."""

    def monotonic_ms(self) -> int:
        self.advance(1)
        return super().monotonic_ms()


async def fill(broker: Site, records: int) -> None:
    """Have a topic of three partitions, with records in the first one."""
    await broker.replica.propose(
        [TopicCreated(topic_id=TOPIC, name="t", partitions=3, replication_factor=1, configs=[])]
    )
    extent = Extent(
        topic_id=TOPIC,
        partition=0,
        position=0,
        size=100,
        records=records,
        max_timestamp=1,
        attributes=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )
    await broker.replica.propose([BatchesCommitted(object_id=0, extents=[extent])], [bytes(100)])


async def commit(broker: Site, group_id: str, *offsets: int) -> None:
    """Commit offsets in the partitions from the first on."""
    if group_id not in broker.replica.state.groups.by_id:
        await broker.store(group_id, "classic", classic_body(group_id, 0))
    epoch = broker.replica.state.groups.by_id[group_id].epoch
    rows = [
        OffsetCommitted(topic_id=TOPIC, partition=at, offset=offset, leader_epoch=-1, metadata="")
        for at, offset in enumerate(offsets)
    ]
    await broker.replica.propose([OffsetsCommitted(group_id=group_id, epoch=epoch, offsets=rows)])


def shown() -> dict[str, float]:
    """Return the samples, by their labels."""
    prefix = "rookery_groups_lag_records"
    lines = (line.removeprefix(prefix).rsplit(" ", 1) for line in LAG.lines(prefix))
    return {labels: float(value) for labels, value in lines}


async def test_lag_of_each_partition_is_exposed_until_the_group_is_deleted(url: str) -> None:
    async with site(url) as broker:
        await fill(broker, 10)
        await commit(broker, "g", 4, 0)
        await commit(broker, "ahead", 99)
        lag = GroupLag(broker.coordinator, broker.replica, broker.clock, 10)

        await lag.refresh()

        assert shown() == {
            '{group="g",topic="t",partition="0"}': 6,
            '{group="g",topic="t",partition="1"}': 0,
            '{group="ahead",topic="t",partition="0"}': 0,
        }
        group = broker.replica.state.groups.by_id["g"]
        event = GroupDeleted(group_id="g", epoch=group.epoch, version=group.version)
        await broker.replica.propose([event])
        await commit(broker, "ahead", 9)
        await lag.refresh()
        assert shown() == {'{group="ahead",topic="t",partition="0"}': 1}


async def test_groups_beyond_the_limit_are_counted_and_not_shown_partly(url: str) -> None:
    async with site(url) as broker:
        await fill(broker, 10)
        await commit(broker, "a", 1, 1)
        await commit(broker, "b", 1, 1, 1)
        await commit(broker, "c", 1)
        lag = GroupLag(broker.coordinator, broker.replica, broker.clock, 4)

        await lag.refresh()

        assert {labels.split('"')[1] for labels in shown()} == {"a", "c"}
        assert OMITTED.value == 3


async def test_refresh_yields_to_the_event_loop(url: str) -> None:
    async with site(url) as broker:
        await fill(broker, 10)
        for number in range(60):
            await commit(broker, f"g{number}", 1)
        lag = GroupLag(broker.coordinator, broker.replica, TickingClock(), 100)
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        await lag.refresh()
        counting.cancel()

        # Two looks at the clock for each group, and a turn after five milliseconds.
        assert turns >= 2 * 60 // 6


async def test_a_group_of_another_broker_is_not_shown(url: str) -> None:
    async with site(url, 1) as first:
        await fill(first, 10)
        for number in range(20):
            await commit(first, f"g{number}", 1)
        async with site(url, 2) as second:
            await first.replica.barrier()
            names = []
            for broker in (first, second):
                lag = GroupLag(broker.coordinator, broker.replica, broker.clock, 100)
                await lag.refresh()
                names.append({group for group, _, _ in lag._shown})

    assert len(names[0]) + len(names[1]) == 20
    assert not names[0] & names[1]
