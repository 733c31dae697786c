"""Retention: what is too old or too much by a topic's settings is let go, by events alone.

It reads the state and no record, so one task does it. What comes of it is the same whoever does it,
and how often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.direct.blocking import BlockingLog, shared
from rookery.direct.host import check_host, host_mark
from rookery.direct.log import DirectLog
from rookery.direct.place import Place
from rookery.errors import ConfigError
from rookery.jobs.limits import limits_of
from rookery.jobs.report import Part, Plan, Report, Requests, Run, Step
from rookery.jobs.tasks import run_tasks
from rookery.log.retention import Retention, kept_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from rookery.log.retention import Limits

NAME: Final = "expire"


class _Task(NamedTuple):
    place: Place
    host: str
    topics: frozenset[str]
    """Their names; empty: all."""


class _Old(NamedTuple):
    """What is to be let go of a partition."""

    topic: str
    partition: int
    begin: int
    end: int
    bytes: int


class _NoLimits(NamedTuple):
    """A topic that is left alone."""

    retention_ms: int = -1
    retention_bytes: int = -1
    is_deleted: bool = False


def expire(
    spark: SparkSession | None,
    place: Place,
    topics: Sequence[str] = (),
    run: Run | None = None,
) -> Report:
    """Let go of records beyond their topic's retention.ms and retention.bytes.

    Args:
        spark: where the task runs; None: in this process.
        place: where the log lies.
        topics: their names; none: all.
        run: dry run, budget, progress.

    Raises:
        ConfigError: a topic is not there.
        Unavailable: the log cannot be read or written.
    """
    run = run or Run()
    with BlockingLog(place, "job-expire") as log:
        state = log.log.state
        _check_topics(state, topics)
        found = _old(state, frozenset(topics), log.log.clock.now_ms())
        chosen = _fitting(found, run.max_bytes)
        report = Report(_plan(found, chosen), is_dry=run.dry_run)
        if run.dry_run or not chosen:
            return report
        names = frozenset(one.topic for one in chosen)
        task = _Task(place, host_mark(place), names)
        [count] = run_tasks(spark, _expire, [task]) if spark is not None else [_expire(task)]
        log.run(log.log.barrier())
        _settle(report, log.log.state, chosen, count)
        run.progress(Step(report.done_bytes, report.plan.bytes, f"{count} partitions"))
        return report


def _check_topics(state: State, topics: Sequence[str]) -> None:
    for name in topics:
        if name not in state.topics.by_name:
            raise ConfigError(f"there is no topic {name!r} in this cluster")


def _old(state: State, topics: frozenset[str], now_ms: int) -> list[_Old]:
    found = []
    for topic in state.topics:
        if topics and topic.name not in topics:
            continue
        for one in topic.partitions:
            end = kept_from(one, limits_of(state, topic), now_ms)
            if end > one.log_start:
                span = range(one.row_of(one.log_start), one.row_of(end - 1) + 1)
                size = sum(one.sizes[span.start : span.stop])
                found.append(_Old(topic.name, one.index, one.log_start, end, size))
    return found


def _fitting(found: list[_Old], max_bytes: int) -> list[_Old]:
    """Return what fits the budget, of whole topics."""
    if not max_bytes:
        return found
    chosen: list[_Old] = []
    for name in dict.fromkeys(one.topic for one in found):
        some = [one for one in found if one.topic == name]
        size = sum(one.bytes for one in some)
        if size <= max_bytes:
            chosen += some
            max_bytes -= size
    return chosen


def _plan(found: list[_Old], chosen: list[_Old]) -> Plan:
    parts = {one: _part(one) for one in found}
    left = [parts[one] for one in found if one not in set(chosen)]
    # Records are let go by events; the caretaker deletes objects in which nothing lives any more.
    return Plan(NAME, tuple(parts[one] for one in chosen), tuple(left), Requests())


def _part(one: _Old) -> Part:
    what = f"{one.topic}-{one.partition} offsets {one.begin} to {one.end - 1}"
    return Part(what, one.bytes, "beyond retention")


def _settle(report: Report, state: State, chosen: list[_Old], count: int) -> None:
    """Check that the log starts are where they should be."""
    report.slices = 1
    report.facts["partitions"] = count
    for one in chosen:
        topic = state.topics.by_name.get(one.topic)
        if topic is None:
            continue  # it was deleted meanwhile, and its records with it
        start = topic.partitions[one.partition].log_start
        if start < one.end:
            report.problems.append(f"{one.topic}-{one.partition} begins at {start}, not {one.end}")
        else:
            report.done_bytes += one.bytes


def _expire(task: _Task) -> int:
    check_host(task.place, task.host)
    log = shared(task.place)
    return log.run(_retain(log.log, task.topics))


async def _retain(log: DirectLog, topics: frozenset[str]) -> int:
    await log.numbers()
    await log.barrier()

    def limits(topic: Topic) -> Limits:
        return limits_of(log.state, topic) if topic.name in topics else _NoLimits()

    return await Retention(log.replica, log.clock, limits).retain()
