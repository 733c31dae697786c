"""Applies retention: removes records that exceed a topic's limits, through events alone.

The job reads the state and no records, so one task is enough. The driver decides once, by its
clock, what expires. The events name the offsets, so they are idempotent and independent of the
sender.

The proof covers the remaining offsets: every partition must have the same offsets from the new log
start on as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from rookery.cluster.events.topicevents import LogStartMoved
from rookery.cluster.state.partition import Partition
from rookery.cluster.state.state import State
from rookery.direct.blockinglog import BlockingLog, open_shared
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress, check_host, host_mark
from rookery.direct.rowstager import propose
from rookery.errors import ConfigError, ErrorCode
from rookery.jobs.clocks import read_trusted_time
from rookery.jobs.limits import limits_of
from rookery.jobs.proof import Proof, prove
from rookery.jobs.report import JobPart, JobPlan, JobReport, JobRun, JobStep, Requests
from rookery.jobs.tasks import run_tasks
from rookery.log.maintain.retention import kept_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

NAME: Final = "expire"
_EVENTS_AT_ONCE: Final = 500
_NAMED: Final = 5


class _Old(NamedTuple):
    """The expired offsets of a partition."""

    topic: str
    topic_id: bytes
    partition: int
    begin: int
    end: int
    bytes: int

    @property
    def what(self) -> str:
        return f"{self.topic}-{self.partition} offsets {self.begin} to {self.end - 1}"


class _Task(NamedTuple):
    place: ClusterAddress
    host: str
    old: list[_Old]


class _Stay(NamedTuple):
    """Offsets of a partition that must remain."""

    topic: str
    topic_id: bytes
    partition: int
    begin: int
    end: int


def expire(
    spark: SparkSession | None,
    place: ClusterAddress,
    topics: Sequence[str] = (),
    run: JobRun | None = None,
) -> JobReport:
    """Delete records that exceed their topic's retention.ms and retention.bytes.

    Args:
        spark: the session that runs the task; None: run it in this process.
        place: the location of the log.
        topics: the names of the topics; none: all.
        run: dry run, budget (of deleted bytes), proof, progress.

    Raises:
        ConfigError: a topic does not exist, this host's clock is wrong, or the budget is too small.
        Unavailable: the log cannot be read or written.
    """
    run = run or JobRun()
    with BlockingLog(place, "job-expire") as log:
        now_ms = log.run(read_trusted_time(log.log))
        state = log.log.state
        _check_topics(state, topics)
        old = _old(state, frozenset(topics), now_ms)
        chosen = _fit(old, run)
        report = JobReport(_plan(old, chosen), is_dry=run.dry_run)
        if run.dry_run or not chosen:
            return report
        stays = _find_staying(state, chosen)
        task = _Task(place, host_mark(place), chosen)
        [count] = run_tasks(spark, _expire, [task]) if spark is not None else [_expire(task)]
        log.run(log.log.barrier())
        _settle(report, log.log.state, chosen, count)
        if run.proof:
            _compare(report, log.log.state, stays)
        run.progress(JobStep(report.done_bytes, report.plan.bytes, f"{count} partitions"))
        return report


def _check_topics(state: State, topics: Sequence[str]) -> None:
    for name in topics:
        if name not in state.topics.by_name:
            raise ConfigError(f"there is no topic {name!r} in this cluster")


def _old(state: State, topics: frozenset[str], now_ms: int) -> list[_Old]:
    old = []
    for topic in state.topics:
        if topics and topic.name not in topics:
            continue
        for partition in topic.partitions:
            end = kept_from(partition, limits_of(state, topic), now_ms)
            if end > partition.log_start:
                span = range(partition.row_of(partition.log_start), partition.row_of(end - 1) + 1)
                size = sum(partition.sizes[span.start : span.stop])
                old.append(
                    _Old(topic.name, topic.id, partition.index, partition.log_start, end, size)
                )
    return old


def _fit(old: list[_Old], run: JobRun) -> list[_Old]:
    """Return the partitions that fit the budget, which must cover at least one."""
    if not run.max_bytes or not old:
        return old
    least = min(old, key=lambda span: span.bytes)
    run.check_budget(NAME, least.what, least.bytes)
    chosen, left = [], run.max_bytes
    for span in old:
        if span.bytes <= left:
            chosen.append(span)
            left -= span.bytes
    return chosen


def _plan(old: list[_Old], chosen: list[_Old]) -> JobPlan:
    taken = set(chosen)
    left = [_part(span) for span in old if span not in taken]
    # Events delete the records; the caretaker deletes objects without live records.
    return JobPlan(NAME, tuple(map(_part, chosen)), tuple(left), Requests())


def _part(span: _Old) -> JobPart:
    return JobPart(span.what, span.bytes, "beyond retention")


def _settle(report: JobReport, state: State, chosen: list[_Old], count: int) -> None:
    """Check that the log starts have reached their targets."""
    report.slices = 1
    report.facts["partitions"] = count
    for span in chosen:
        partition = state.topics.partition(span.topic_id, span.partition)
        if partition is None:
            continue  # it was deleted in the meantime, with its records
        if partition.log_start < span.end:
            report.problems.append(
                f"{span.topic}-{span.partition} begins at {partition.log_start}, not {span.end}"
            )
        else:
            report.done_bytes += span.bytes


# The proof.


def _find_staying(state: State, chosen: list[_Old]) -> dict[_Stay, int]:
    """Return the offsets of all partitions that must remain, with their first existing offset."""
    ends = {(span.topic_id, span.partition): span.end for span in chosen}
    stays = {}
    for topic in state.topics:
        for partition in topic.partitions:
            begin = ends.get((topic.id, partition.index), partition.log_start)
            stay = _Stay(topic.name, topic.id, partition.index, begin, partition.next_offset)
            stays[stay] = _begin(stay, partition)
    return stays


def _begin(stay: _Stay, partition: Partition) -> int:
    """Return the first existing offset; rows are contiguous."""
    first = partition.base_offsets[0] if partition.base_offsets else partition.next_offset
    return min(max(first, stay.begin), stay.end)


def _compare(report: JobReport, state: State, stays: dict[_Stay, int]) -> None:
    """Compare the remaining offsets; skip partitions from which others deleted more."""
    after, changed = {}, []
    for stay in stays:
        partition = state.topics.partition(stay.topic_id, stay.partition)
        if partition is None or partition.log_start > stay.begin:
            changed.append(f"{stay.topic}-{stay.partition}")
        else:
            after[stay] = _begin(stay, partition)
    report.before = _proof({stay: stays[stay] for stay in after})
    report.after = _proof(after)
    report.check()
    if changed:
        names = ", ".join(changed[:_NAMED]) + (", …" if len(changed) > _NAMED else "")
        report.notes.append(
            f"others deleted more records meanwhile, so the result was not compared: {names}"
        )


def _proof(begins: dict[_Stay, int]) -> Proof:
    """Sum up the existing offsets, of those that must remain."""
    places = {
        "offset": pa.array(begins.values(), pa.int64()),
        "timestamp": pa.array([begin.end for begin in begins], pa.int64()),
        "value": pa.array([b"%b %d" % begin[1:3] for begin in begins], pa.binary()),
    }
    rows = sum(stay.end - begin for stay, begin in begins.items())
    return Proof(rows, prove([pa.record_batch(places)]).checksum)


# Code that runs in the task.


def _expire(task: _Task) -> int:
    check_host(task.place, task.host)
    log = open_shared(task.place)
    return log.run(_let_go(log.log, task.old))


async def _let_go(log: DirectLog, old: list[_Old]) -> int:
    """Advance the log starts; return how many were moved."""
    await log.barrier()
    events = [
        LogStartMoved(topic_id=span.topic_id, partition=span.partition, offset=span.end)
        for span in old
    ]
    outcomes = []
    for start in range(0, len(events), _EVENTS_AT_ONCE):
        outcomes += await propose(log, list(events[start : start + _EVENTS_AT_ONCE]))
    return sum(outcome.error is ErrorCode.NONE for outcome in outcomes)
