"""The journal file under way is ended and deleted once nothing lives in it."""

from __future__ import annotations

from pathlib import Path

from rookery.cluster.events.topicevents import LogStartMoved
from rookery.log.maintain.bins import ObjectBin
from rookery.log.maintain.reclaim import EMPTY_MS, MAX_AGE_MS, Reclaimer
from rookery.log.maintain.sweeper import Sweeper
from tests.log.rewriting import TOPIC, World, a_world


async def expire_all(world: World) -> None:
    await world.broker.propose([LogStartMoved(topic_id=TOPIC, partition=0, offset=-1)])


def current_file(world: World) -> int | None:
    return world.journal.current


def journals(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*") if path.is_file())


async def look(world: World, reclaimer: Reclaimer, *pauses_ms: int) -> None:
    await reclaimer.look()
    for pause in pauses_ms:
        world.clock.advance(pause)
        await reclaimer.look()


async def test_expired_bytes_of_an_idle_broker_are_deleted(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.topic(1)
        await world.produce([0], size=100_000)
        reclaimer = Reclaimer(world.journal, world.broker, world.clock)
        process = await world.process()
        objects = ObjectBin(tmp_path, world.store, lambda: process.replica.state, "default")
        sweeper = Sweeper(process.replica, objects, world.clock, 0, 1)
        await expire_all(world)
        await process.replica.barrier()
        await sweeper.sweep(process.replica.state.applied)
        [name] = journals(tmp_path)

        await look(world, reclaimer, EMPTY_MS - 1)
        assert current_file(world) is not None
        await look(world, reclaimer, 1)

        assert current_file(world) is None
        await process.replica.barrier()
        assert (await sweeper.sweep(process.replica.state.applied)).deleted == 1
        assert journals(tmp_path) == []
        await world.produce([0])
        [other] = journals(tmp_path)
        assert other != name


async def test_file_with_live_rows_is_kept(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.topic(1)
        await world.produce([0])
        reclaimer = Reclaimer(world.journal, world.broker, world.clock)

        await look(world, reclaimer, EMPTY_MS, EMPTY_MS)

        assert current_file(world) is not None
        assert not world.broker.state.objects.condemned


async def test_file_is_kept_while_a_commit_into_it_is_in_flight(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.topic(1)
        await world.produce([0])
        await expire_all(world)
        reclaimer = Reclaimer(world.journal, world.broker, world.clock)
        current = world.journal.current or 0
        assert current
        reclaimer.begin_commit(current)

        await look(world, reclaimer, EMPTY_MS, MAX_AGE_MS)

        assert current_file(world) == current
        reclaimer.end_commit(current)
        await look(world, reclaimer, EMPTY_MS)
        assert current_file(world) is None
        assert list(world.broker.state.objects.condemned) == [current]


async def test_old_file_is_rolled_and_condemned_when_it_is_empty(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.topic(1)
        await world.produce([0])
        reclaimer = Reclaimer(world.journal, world.broker, world.clock)
        first = world.journal.current or 0
        assert first

        await look(world, reclaimer, MAX_AGE_MS)

        assert current_file(world) is None
        assert not world.broker.state.objects.condemned
        await expire_all(world)
        await look(world, reclaimer, EMPTY_MS)
        assert list(world.broker.state.objects.condemned) == [first]
