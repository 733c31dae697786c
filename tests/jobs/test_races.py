"""Concurrent changes of the log are not failures of a job, and it reports them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rookery.cluster.events.topicevents import LogStartMoved, TopicDeleted
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress, host_mark
from rookery.jobs import compaction, mergejob
from rookery.jobs.proof import Proof
from rookery.log.maintain.rewritejob import MergeJob, range_of
from rookery.log.settings import RewriteSettings
from tests.direct.sinking import rows
from tests.jobs.world import check_clean, contents, create, fill, last_by_key, state_of, with_log

Others = Callable[[ClusterAddress], None]


def _compact_task(place: ClusterAddress) -> compaction._Task:
    def task(state: Any) -> compaction._Task:
        topic = state.topics.by_name["t"]
        bound = topic.partitions[0].next_offset
        return compaction._Task(
            place, host_mark(place), topic.id, 0, bound, 2**50, has_proof=True, size=0
        )

    return state_of(place, task)


def _merge_task(place: ClusterAddress) -> mergejob._Task:
    def job(state: Any) -> MergeJob:
        topic = state.topics.by_name["t"]
        partition = topic.partitions[0]
        return MergeJob((range_of(topic, partition, range(len(partition.base_offsets))),))

    settings = RewriteSettings()
    return mergejob._Task(place, host_mark(place), state_of(place, job), settings, has_proof=True)


def _compact_further(place: ClusterAddress) -> None:
    """Compact as a caretaker does that has seen more records."""
    fill(place, "t", [rows(300, 5_000)])
    task = _compact_task(place)
    assert with_log(place, lambda log: compaction._clean(log, task))


def _delete_some(place: ClusterAddress) -> None:
    async def work(log: DirectLog) -> None:
        topic = log.state.topics.by_name["t"]
        await log.propose([LogStartMoved(topic_id=topic.id, partition=0, offset=300)])

    with_log(place, work)


def _delete_all(place: ClusterAddress) -> None:
    async def work(log: DirectLog) -> None:
        await log.propose([TopicDeleted(topic_id=log.state.topics.by_name["t"].id)])

    with_log(place, work)


def _interrupt(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, others: Callable[[], None]
) -> None:
    """Let others change the log after the job, before it proves its result."""
    work = getattr(module, name)

    async def interrupted(log: DirectLog, task: Any) -> Any:
        done = await work(log, task)
        monkeypatch.undo()
        await asyncio.to_thread(others)
        return done

    monkeypatch.setattr(module, name, interrupted)


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (_compact_further, "others have compacted it up to offset 900"),
        (_delete_some, "the log begins at 300"),
        (_delete_all, "the topic was deleted"),
    ],
)
def test_compaction_survives_concurrent_changes(
    place: ClusterAddress, monkeypatch: pytest.MonkeyPatch, others: Others, told: str
) -> None:
    create(place, "t", 1, cleanup_policy="compact")
    fill(place, "t", [rows(300), rows(300, 300)])
    task = _compact_task(place)
    _interrupt(monkeypatch, compaction, "_clean", lambda: others(place))

    done = compaction._compact(task)

    assert done.replaced
    assert done.before == done.after == Proof(exact_keys=0)
    assert told in done.note
    check_clean(place)


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (_compact_further, "t-0 was not compared: others rewrote it meanwhile"),
        (_delete_some, "the log begins at 300"),
        (_delete_all, "the topic was deleted"),
    ],
)
def test_merge_survives_concurrent_changes(
    place: ClusterAddress, monkeypatch: pytest.MonkeyPatch, others: Others, told: str
) -> None:
    create(place, "t", 1, cleanup_policy="compact")
    fill(place, "t", [rows(300), rows(300, 300)])
    task = _merge_task(place)
    _interrupt(monkeypatch, mergejob, "_carry_out", lambda: others(place))

    done = mergejob._rewrite(task)

    assert done.rewritten
    assert done.before == done.after == Proof()
    assert told in done.note
    check_clean(place)


@pytest.mark.parametrize("others", [_delete_some, _delete_all, _compact_further])
def test_merge_of_deleted_rows_is_skipped(place: ClusterAddress, others: Others) -> None:
    create(place, "t", 1, cleanup_policy="compact")
    fill(place, "t", [rows(300), rows(300, 300)])
    task = _merge_task(place)
    others(place)

    done = mergejob._rewrite(task)

    assert done.rewritten == 0
    assert done.before == done.after


def test_undisturbed_compaction_is_verified(place: ClusterAddress) -> None:
    create(place, "t", 1, cleanup_policy="compact")
    fill(place, "t", [rows(300), rows(300, 300)])
    before = last_by_key(contents(place, "t"))
    done = compaction._compact(_compact_task(place))

    assert not done.note
    assert done.before == done.after
    assert done.after.keys == 100
    assert last_by_key(contents(place, "t")) == before

    merged = mergejob._rewrite(_merge_task(place))
    assert not merged.note
    assert merged.before == merged.after
    assert merged.after.rows == 100
