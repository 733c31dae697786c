"""Sweeping: condemned before deleted, deleted only after a snapshot, and never a live object."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from rookery.cluster.events.brokerevents import (
    BrokerExpired,
    BrokerRegistered,
    ClusterCreated,
    ProcessRegistered,
)
from rookery.cluster.events.logevents import BatchesCommitted, Extent, SegmentsStaged, StagedSegment
from rookery.cluster.events.topicevents import LogStartMoved, TopicCreated
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.formats.keys import STORED, object_id
from rookery.log.maintain.sweeper import Sweeper
from rookery.testing.clock import ManualClock

TOPIC = bytes(range(16))
DELAY = 1000
ORPHANS = 5000


class Bin:
    """Objects that are there, by id."""

    def __init__(self) -> None:
        self.there: set[int] = set()

    async def find(self) -> list[int]:
        return sorted(self.there)

    async def delete(self, identity: int) -> None:
        self.there.discard(identity)


class World:
    """A broker that writes, a caretaker that sweeps."""

    def __init__(self, broker: Replica, caretaker: Replica, clock: ManualClock) -> None:
        self.broker, self.caretaker, self.clock = broker, caretaker, clock
        self.bin = Bin()
        self.sweeper = Sweeper(caretaker, self.bin, clock, DELAY, ORPHANS)

    def stored(self, number: int) -> int:
        identity = object_id(self.broker.incarnation, STORED + number)
        self.bin.there.add(identity)
        return identity

    async def commit(self, identity: int) -> list[object]:
        extent = Extent(
            topic_id=TOPIC, partition=0, position=0, size=100, records=1, attributes=0,
            max_timestamp=1, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        )  # fmt: skip
        [outcome] = await self.broker.propose(
            [BatchesCommitted(object_id=identity, extents=[extent])]
        )
        return list(outcome.value)

    async def empty(self) -> None:
        await self.broker.propose([LogStartMoved(topic_id=TOPIC, partition=0, offset=-1)])

    async def sweep(self, snapshot: int | None = None) -> None:
        await self.caretaker.barrier()
        await self.sweeper.sweep(self.caretaker.state.applied if snapshot is None else snapshot)

    async def die(self) -> None:
        """Let the broker be taken for dead."""
        await self.caretaker.barrier()
        last = self.caretaker.state.brokers.sequences[self.broker.incarnation]
        event = BrokerExpired(incarnation=self.broker.incarnation, last_sequence=last)
        await self.caretaker.propose([event])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    name, clock = f"memory:{os.urandom(8).hex()}", ManualClock()
    broker, caretaker = Replica(open_log(name), clock), Replica(open_log(name), clock)
    await broker.open()
    await broker.create_cluster(ClusterCreated(cluster_id="c", feature_level=1))
    await broker.register(BrokerRegistered(process_id=TOPIC, node_id=1, host="h", port=1))
    await caretaker.open()
    await caretaker.register(ProcessRegistered(process_id=TOPIC, purpose="caretaker"))
    topic = TopicCreated(topic_id=TOPIC, name="t", partitions=1, replication_factor=1, configs=[])
    await broker.propose([topic])
    yield World(broker, caretaker, clock)
    await broker.close()
    await caretaker.close()


async def test_live_object_is_kept(world: World) -> None:
    identity = world.stored(0)
    await world.commit(identity)
    for _ in range(5):
        world.clock.advance(ORPHANS)
        await world.sweep()
    assert world.bin.there == {identity}


async def test_deletion_waits_for_two_delays_and_a_snapshot(world: World) -> None:
    identity = world.stored(0)
    await world.commit(identity)
    await world.empty()
    await world.sweep()
    assert not world.caretaker.state.objects.condemned
    world.clock.advance(DELAY)
    await world.sweep()
    assert identity in world.caretaker.state.objects.condemned
    world.clock.advance(10 * DELAY)
    await world.sweep(snapshot=1)  # older than the condemnation
    assert world.bin.there == {identity}
    await world.sweep()
    world.clock.advance(DELAY)
    await world.sweep()
    assert not world.bin.there
    assert identity not in world.caretaker.state.objects.rows


async def test_commit_to_a_condemned_object_is_refused(world: World) -> None:
    identity = world.stored(0)
    await world.commit(identity)
    await world.empty()
    for _ in range(2):
        await world.sweep(snapshot=0)
        world.clock.advance(DELAY)
    outcomes = await world.commit(identity)
    assert [outcome.error.name for outcome in outcomes] == ["KAFKA_STORAGE_ERROR"]  # type: ignore[attr-defined]


async def test_upload_in_flight_is_not_an_orphan(world: World) -> None:
    identity = world.stored(0)
    for _ in range(5):
        await world.sweep()
        world.clock.advance(ORPHANS)
    assert world.bin.there == {identity}
    assert (await world.commit(identity))[0].error.name == "NONE"  # type: ignore[attr-defined]


async def test_orphans_of_dead_processes_are_deleted(world: World) -> None:
    kept, orphan = world.stored(0), world.stored(1)
    await world.commit(kept)
    await world.die()
    for _ in range(6):
        await world.sweep()
        world.clock.advance(ORPHANS)
    assert world.bin.there == {kept}
    assert orphan not in world.caretaker.state.objects.rows


async def test_staged_segment_is_kept_while_its_writer_lives(world: World) -> None:
    identity = world.stored(7)
    staged = StagedSegment(object_id=identity, topic_id=TOPIC, partition=0, base_offset=0)
    await world.broker.propose([SegmentsStaged(segments=[staged])])
    for _ in range(4):
        await world.sweep()
        world.clock.advance(ORPHANS)
    assert identity in world.caretaker.state.objects.segments
    await world.die()
    for _ in range(6):
        await world.sweep()
        world.clock.advance(ORPHANS)
    assert not world.bin.there
    assert identity not in world.caretaker.state.objects.segments


async def test_active_journal_is_kept_and_an_older_one_deleted(world: World) -> None:
    first, second = (object_id(world.broker.incarnation, number) for number in (0, 1))
    world.bin.there |= {first, second}
    await world.commit(first)
    await world.commit(second)
    await world.empty()
    for _ in range(6):
        await world.sweep()
        world.clock.advance(ORPHANS)
    assert world.bin.there == {second}
