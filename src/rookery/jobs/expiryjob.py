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
from rookery.direct.blockinglog import BlockingLog, shared
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress, check_host, host_mark
from rookery.direct.rowstager import propose
from rookery.errors import ConfigError, ErrorCode
from rookery.jobs.clocks import trusted_now
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
        now_ms = log.run(trusted_now(log.log))
        state = log.log.state
        _check_topics(state, topics)
        found = _old(state, frozenset(topics), now_ms)
        chosen = _fitting(found, run)
        report = JobReport(_plan(found, chosen), is_dry=run.dry_run)
        if run.dry_run or not chosen:
            return report
        stays = _staying(state, chosen)
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
    found = []
    for topic in state.topics:
        if topics and topic.name not in topics:
            continue
        for one in topic.partitions:
            end = kept_from(one, limits_of(state, topic), now_ms)
            if end > one.log_start:
                span = range(one.row_of(one.log_start), one.row_of(end - 1) + 1)
                size = sum(one.sizes[span.start : span.stop])
                found.append(_Old(topic.name, topic.id, one.index, one.log_start, end, size))
    return found


def _fitting(found: list[_Old], run: JobRun) -> list[_Old]:
    """Return the partitions that fit the budget, which must cover at least one."""
    if not run.max_bytes or not found:
        return found
    least = min(found, key=lambda one: one.bytes)
    run.check_budget(NAME, least.what, least.bytes)
    chosen, left = [], run.max_bytes
    for one in found:
        if one.bytes <= left:
            chosen.append(one)
            left -= one.bytes
    return chosen


def _plan(found: list[_Old], chosen: list[_Old]) -> JobPlan:
    taken = set(chosen)
    left = [_part(one) for one in found if one not in taken]
    # Events delete the records; the caretaker deletes objects without live records.
    return JobPlan(NAME, tuple(map(_part, chosen)), tuple(left), Requests())


def _part(one: _Old) -> JobPart:
    return JobPart(one.what, one.bytes, "beyond retention")


def _settle(report: JobReport, state: State, chosen: list[_Old], count: int) -> None:
    """Check that the log starts have reached their targets."""
    report.slices = 1
    report.facts["partitions"] = count
    for one in chosen:
        partition = state.topics.partition(one.topic_id, one.partition)
        if partition is None:
            continue  # it was deleted in the meantime, with its records
        if partition.log_start < one.end:
            report.problems.append(
                f"{one.topic}-{one.partition} begins at {partition.log_start}, not {one.end}"
            )
        else:
            report.done_bytes += one.bytes


# The proof.


def _staying(state: State, chosen: list[_Old]) -> dict[_Stay, int]:
    """Return the offsets of all partitions that must remain, with their first existing offset."""
    ends = {(one.topic_id, one.partition): one.end for one in chosen}
    found = {}
    for topic in state.topics:
        for one in topic.partitions:
            begin = ends.get((topic.id, one.index), one.log_start)
            stay = _Stay(topic.name, topic.id, one.index, begin, one.next_offset)
            found[stay] = _begin(stay, one)
    return found


def _begin(stay: _Stay, partition: Partition) -> int:
    """Return the first existing offset; rows are contiguous."""
    first = partition.base_offsets[0] if partition.base_offsets else partition.next_offset
    return min(max(first, stay.begin), stay.end)


def _compare(report: JobReport, state: State, stays: dict[_Stay, int]) -> None:
    """Compare the remaining offsets; skip partitions from which others deleted more."""
    after, changed = {}, []
    for one in stays:
        partition = state.topics.partition(one.topic_id, one.partition)
        if partition is None or partition.log_start > one.begin:
            changed.append(f"{one.topic}-{one.partition}")
        else:
            after[one] = _begin(one, partition)
    report.before = _proof({one: stays[one] for one in after})
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
        "timestamp": pa.array([one.end for one in begins], pa.int64()),
        "value": pa.array([b"%b %d" % one[1:3] for one in begins], pa.binary()),
    }
    rows = sum(one.end - begin for one, begin in begins.items())
    return Proof(rows, prove([pa.record_batch(places)]).checksum)


# Code that runs in the task.


def _expire(task: _Task) -> int:
    check_host(task.place, task.host)
    log = shared(task.place)
    return log.run(_let_go(log.log, task.old))


async def _let_go(log: DirectLog, old: list[_Old]) -> int:
    """Advance the log starts; return how many were moved."""
    await log.barrier()
    events = [
        LogStartMoved(topic_id=one.topic_id, partition=one.partition, offset=one.end) for one in old
    ]
    outcomes = []
    for start in range(0, len(events), _EVENTS_AT_ONCE):
        outcomes += await propose(log, list(events[start : start + _EVENTS_AT_ONCE]))
    return sum(one.error is ErrorCode.NONE for one in outcomes)
