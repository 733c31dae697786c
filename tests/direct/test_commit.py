"""Commits: all or nothing, once, and recognised after a lost answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rookery.cli.output.recovery import as_text
from rookery.clock import SystemClock, SystemRandom
from rookery.cluster.events.brokerevents import BrokerExpired
from rookery.cluster.events.sinkevents import SinkCommitted
from rookery.cluster.events.topicevents import TopicDeleted
from rookery.cluster.state.outcome import Outcome
from rookery.cluster.state.rules import sinkrules
from rookery.cluster.state.sinks import SinkBatch
from rookery.direct import commit as commits
from rookery.direct.commit import commit, forget, last_commit
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress
from rookery.direct.rowstager import abort
from rookery.errors import ConfigError, Conflict, Gone, Unavailable
from rookery.formats.keys import object_key
from rookery.log.check.sources import Sources
from rookery.log.maintain import snapshots
from rookery.log.maintain.bins import ObjectBin
from rookery.log.maintain.sweeper import Sweeper
from rookery.log.origin import Handles
from rookery.log.recover.recover import RecoveryPlan, append_unplaced, carry_out, check_lost, plan
from rookery.testing.clock import ManualClock
from tests.direct.sinking import (
    BATCH,
    faults,
    make_cluster,
    make_topic,
    read_topic,
    rows,
    stage,
    values_of,
    write,
)


@pytest.fixture
async def place(tmp_path: Path) -> ClusterAddress:
    return await make_cluster(tmp_path)


@pytest.fixture
async def log(place: ClusterAddress) -> AsyncIterator[DirectLog]:
    async with DirectLog.open(place) as opened:
        await make_topic(opened)
        yield opened


async def ids(log: DirectLog, *batches: Any, batch: SinkBatch = BATCH) -> list[int]:
    return [staged.object_id for staged in await stage(log, *batches, batch=batch)]


async def test_repeated_batch_is_reported_and_its_objects_are_condemned(
    log: DirectLog, place: ClusterAddress
) -> None:
    first, again = await ids(log, rows(100)), await ids(log, rows(100))
    assert (await commit(log, BATCH, first)).records == 100
    # A task that was run twice, and a driver that was: each has other objects, or the same.
    for objects in (first, again, first):
        assert (await commit(log, BATCH, objects)).is_repeated
    assert len(await values_of(log)) == 100
    assert set(again) <= set(log.state.objects.condemned)
    assert not await faults(place)


@pytest.mark.parametrize("batch", [SinkBatch("sink", "other", 0), SinkBatch("sink", "other", 6)])
async def test_refused_query_gets_instructions_for_a_takeover(
    log: DirectLog, batch: SinkBatch
) -> None:
    await write(log, rows(10), batch=SinkBatch("sink", "query", 5))
    objects = await ids(log, rows(10), batch=batch)
    with pytest.raises(Conflict, match=r"query 'query' \(up to its batch 5\).*takeOver=true"):
        await commit(log, batch, objects)
    assert len(await values_of(log)) == 10
    assert (await commit(log, batch, objects, takes_over=True)).records == 10
    later = SinkBatch("sink", "query", 6)
    with pytest.raises(Conflict, match="takeOver"):
        await commit(log, later, await ids(log, rows(1), batch=later))


async def test_refused_earlier_batch_gets_instructions_for_a_takeover(log: DirectLog) -> None:
    await write(log, rows(10), batch=SinkBatch("sink", "query", 5))
    objects = await ids(log, rows(10))
    with pytest.raises(Conflict, match=r"has batch 5 already, so batch 0 .* takeOver=true"):
        await commit(log, BATCH, objects)
    assert (await commit(log, BATCH, objects, takes_over=True)).records == 10


async def test_source_offsets_are_stored_with_the_batch(log: DirectLog) -> None:
    assert await last_commit(log, "sink") is None
    await commit(log, BATCH, await ids(log, rows(1)), source_offsets='{"t": 5}')
    later = SinkBatch("sink", "query", 7)
    await commit(log, later, [], source_offsets='{"t": 9}')
    last = await last_commit(log, "sink")
    assert last is not None
    assert last[:3] == ("query", 7, '{"t": 9}')
    assert await forget(log, "sink")
    assert not await forget(log, "sink")
    assert await last_commit(log, "sink") is None


async def test_abort_after_a_seemingly_failed_commit_loses_nothing(
    log: DirectLog, place: ClusterAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = await ids(log, rows(50))
    real = log.propose

    async def lost(events: Any, payload: Any = ()) -> list[Outcome]:
        outcomes = await real(events, payload)
        if isinstance(events[0], SinkCommitted):
            raise Unavailable("ordered by the test: the answer is lost")
        return outcomes

    monkeypatch.setattr(log, "propose", lost)
    with pytest.raises(Unavailable, match="the answer is lost"):
        await commit(log, BATCH, objects)
    assert await abort(log, objects) == []
    assert len(await values_of(log)) == 50
    assert not await faults(place)
    # Spark runs the batch again.
    monkeypatch.undo()
    assert (await commit(log, BATCH, await ids(log, rows(50)))).is_repeated
    assert len(await values_of(log)) == 50


async def test_a_commit_that_comes_after_its_abort_is_refused(log: DirectLog) -> None:
    objects = await ids(log, rows(50))
    assert await abort(log, objects) == objects
    with pytest.raises(Gone, match="is not staged any more"):
        await commit(log, BATCH, objects)
    assert await values_of(log) == []


async def test_objects_of_several_writers_are_committed_in_the_given_order(
    log: DirectLog, place: ClusterAddress
) -> None:
    async with DirectLog.open(place) as other:
        late = await ids(other, rows(1000, 1000))
    early = await ids(log, rows(1000))
    await commit(log, BATCH, [*early, *late])
    for part in await read_topic(log):
        numbers = [int((record.value or b"")[1:]) for record in part]
        assert numbers == sorted(numbers)
    assert len(await values_of(log)) == 2000


async def test_deleted_topic_and_exceeded_bounds_are_reported(
    log: DirectLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = await ids(log, rows(5))
    monkeypatch.setattr(commits, "MAX_OBJECTS", 0)
    with pytest.raises(ConfigError, match="at most 0; make them larger"):
        await commit(log, BATCH, objects)
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="source offsets of 131074 bytes"):
        await commit(
            log, BATCH, objects, source_offsets="ä" * (sinkrules.MAX_SOURCE_OFFSETS // 2 + 1)
        )
    with pytest.raises(ConfigError, match="at most 255 characters"):
        await commit(log, SinkBatch("s" * 256, "q", 0), objects)
    with pytest.raises(ConfigError, match="must not be negative"):
        await commit(log, SinkBatch("s", "q", -1), objects)
    await log.propose([TopicDeleted(topic_id=log.state.topics.by_name["t"].id)])
    with pytest.raises(Gone, match="a topic was deleted meanwhile"):
        await commit(log, BATCH, objects)


async def test_expired_writer_joins_again(log: DirectLog, place: ClusterAddress) -> None:
    objects = await ids(log, rows(20))
    async with DirectLog.open(place) as other:
        await other.barrier()
        for incarnation, last in dict(other.state.brokers.sequences).items():
            event = BrokerExpired(incarnation=incarnation, last_sequence=last)
            await other.propose([event])
    assert (await commit(log, BATCH, objects)).records == 20
    assert not await faults(place)


# Leftovers are removed.


async def sweep(log: DirectLog) -> None:
    """Do what a caretaker does, until nothing is left to do."""
    await log.numbers()
    clock = ManualClock(now_ms=SystemClock().now_ms())
    bins = ObjectBin(None, log.store, lambda: log.state, log.namespace)
    sweeper = Sweeper(log.replica, bins, clock, delay_ms=10, orphans_ms=10)
    await log.barrier()
    for incarnation, last in dict(log.state.brokers.sequences).items():
        if incarnation != log.incarnation:
            await log.propose([BrokerExpired(incarnation=incarnation, last_sequence=last)])
    for _ in range(4):
        clock.advance(100)
        await sweeper.sweep(await snapshots.save(log.store, log.state))


async def stored(log: DirectLog) -> set[int]:
    bins = ObjectBin(None, log.store, lambda: log.state, log.namespace)
    return set(await bins.find())


async def test_only_committed_or_staged_objects_survive_the_sweep(
    log: DirectLog, place: ClusterAddress
) -> None:
    """A batch under way survives the sweeper, although its writers are gone."""
    committed = await ids(log, rows(10))
    await commit(log, BATCH, committed)
    async with DirectLog.open(place) as other:
        staged = await ids(other, rows(10), batch=SinkBatch("sink", "query", 1))
        orphan = (await other.numbers())()
        await other.store.create(object_key(orphan), [b"never named"])
    await sweep(log)
    assert await stored(log) == {*committed, *staged}
    await commit(log, SinkBatch("sink", "query", 1), staged)
    assert len(await values_of(log)) == 20
    assert not await faults(place)


async def test_uncommitted_objects_are_swept_after_their_time_limit(
    log: DirectLog, place: ClusterAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinkrules, "MAX_STAGED_MS", 1)
    await ids(log, rows(10))
    await sweep(log)
    assert not log.state.sinks.staged
    assert await stored(log) == set()
    assert not await faults(place)


# The cluster log is lost.


async def lose_and_rebuild(place: ClusterAddress) -> RecoveryPlan:
    """Delete the cluster log, and do what `rookery recover --append-unplaced` does."""
    opened = Handles(place.origin())
    for item in await opened.store.list("_rookery/log/"):
        await opened.store.delete(item.key)
    sources = Sources(opened.cluster_log, opened.store, None, opened.namespace)
    await check_lost(sources)
    made = await plan(sources, SystemClock())
    await carry_out(sources, made, keep_unplaced=False)
    assert await append_unplaced(sources, made, SystemClock(), SystemRandom()) == []
    aside = await opened.store.list("_rookery/unplaced/")
    assert len(aside) == len(made.unplaced)
    for item in aside:
        await opened.store.delete(item.key)
    await opened.close()
    return made


@pytest.mark.parametrize("has_snapshot", [False, True])
async def test_lost_cluster_log_is_recovered_with_offsets_and_sinks(
    place: ClusterAddress, has_snapshot: bool
) -> None:
    later, never = SinkBatch("sink", "query", 1), SinkBatch("sink", "query", 2)
    async with DirectLog.open(place) as log:
        await make_topic(log)
        await write(log, rows(300))
        if has_snapshot:
            await snapshots.save(log.store, log.state)
        objects = await ids(log, rows(300, 300), batch=later)
        await commit(log, later, objects, source_offsets="far")
        await ids(log, rows(10), batch=never)
        before = await read_topic(log)
    made = await lose_and_rebuild(place)
    # Staged, uncommitted parts are reported and not appended: the stream writes them again.
    name = "batch 2 of query 'query' into sink 'sink'"
    assert [(unplaced.records, unplaced.staged_for) for unplaced in made.unplaced] == [(10, name)]
    assert any(name in line for line in as_text(made, [], is_dry=False))
    async with DirectLog.open(place) as log:
        assert await read_topic(log) == before
        last = await last_commit(log, "sink")
        assert last is not None
        assert last[:3] == ("query", 1, "far")
        # It continues where it was, and does not write twice.
        assert (await commit(log, later, [])).is_repeated
        await write(log, rows(5, 600), batch=never)
        assert len(await values_of(log)) == 605
    assert not await faults(place)
