"""Copies topics to any Kafka with transactions, exactly once (or at least once on request).

how far it is, read there ──► what is left of each partition ──► a task each, the largest first
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from rookery.client.admin import NewTopic
from rookery.client.client import Client
from rookery.client.connect.cluster import TopicView
from rookery.client.settings import ClientSettings
from rookery.cluster.state.topics import Topic
from rookery.direct.blockinglog import BlockingLog
from rookery.direct.offsets import check_reached, end_of
from rookery.direct.place import ClusterAddress, host_mark
from rookery.errors import ApiError, ConfigError, ErrorCode
from rookery.jobs.copyjob import NAME, CopyRequest
from rookery.jobs.move.kafkaprogress import CopyEnds, read_progress
from rookery.jobs.move.kafkatask import CopyTask, copy_partition
from rookery.jobs.move.rangereads import refuse
from rookery.jobs.move.slicecutters import find_topics
from rookery.jobs.move.topicfill import divide_by_budget, estimate_requests
from rookery.jobs.move.topics import select_configs
from rookery.jobs.proof import Proof
from rookery.jobs.report import JobPlan, JobReport, JobRun, JobStep
from rookery.jobs.tasks import run_tasks, slots
from rookery.log.read.rangeplan import OffsetRange, ReadPlanner
from rookery.model.partition import TopicPartition
from rookery.model.uuid import ZERO, uuid_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A transaction stays open only as long as it takes to write this much.
_SLICE_BYTES: Final = 32 * 1024 * 1024
# The rest of a budget is not divided into smaller parts than this.
_LEAST_BYTES: Final = 1024 * 1024
# No topic has this id: progress of a copy to a deleted topic is void.
_GONE: Final = "gone"
# Settings that only Rookery has, or that would reject records because of their timestamps.
_NOT_KEPT: Final = ("rookery.", "message.timestamp.")

_ByPlace = dict[tuple[bytes, int], int]
"""Values by topic id and partition: offsets, or remaining bytes."""


def copy_to_kafka(
    spark: SparkSession,
    source: ClusterAddress,
    kafka: ClientSettings,
    copying: CopyRequest,
    run: JobRun | None = None,
    *,
    is_exact: bool = True,
) -> JobReport:
    """Copy topics to a Kafka; a repeated run continues with new records.

    Missing topics are created in the target. The progress and the offset map of each topic are
    stored there in a topic `rookery-<name of the job>-<topic>`.

    Args:
        spark: the session that runs the tasks.
        source: the location of the log to read.
        kafka: the connection to the target Kafka.
        copying: the topics to copy, and how.
        run: budget, dry run, proof, progress.
        is_exact: use transactions; otherwise a failure can leave duplicate records.

    Raises:
        ConfigError: the topics cannot be copied this way.
        Conflict: the job's name belongs to another copy, or the topics were recreated.
        ApiError: the target Kafka rejects a request.
        Unavailable: the source or the target cannot be reached.
    """
    run = run or JobRun()
    check_map(copying)
    job = _KafkaCopy(source, kafka, copying, run, is_exact=is_exact)
    with BlockingLog(source, "job-copy") as log:
        topics = find_topics(log, copying.topics)
        left = _measure_left(log, topics, log.run(_find_reached(kafka, copying, topics)))
        report = job.plan(sum(left.values()))
        if run.dry_run:
            return report
        ends = log.run(_prepare(kafka, copying, topics))
        _work(spark, job.tasks(left, ends), run, report)
        return report


@dataclass(frozen=True, slots=True)
class _KafkaCopy:
    """One run of a copy: its ends and its options."""

    source: ClusterAddress
    kafka: ClientSettings
    copying: CopyRequest
    run: JobRun
    is_exact: bool

    def plan(self, size: int) -> JobReport:
        """Return a report with the plan, before any work is done."""
        label = "exactly once" if self.is_exact else "at least once"
        what = f"{', '.join(self.copying.topics)} to Kafka {self.kafka.bootstrap}, {label}"
        plan = JobPlan(
            NAME, *divide_by_budget(what, size, self.run), estimate_requests(size, self.run)
        )
        return JobReport(plan, is_dry=self.run.dry_run, facts={"delivery": label})

    def tasks(self, left: _ByPlace, ends: dict[bytes, CopyEnds]) -> list[CopyTask]:
        """Return a task for each partition, the one with the most remaining bytes first."""
        return [
            self._task(ends[topic], topic, index)
            for topic, index in sorted(left, key=left.__getitem__, reverse=True)
        ]

    def _task(self, ends: CopyEnds, topic_id: bytes, partition: int) -> CopyTask:
        progress = self.copying.progress(ends.topic)
        return CopyTask(
            source=self.source,
            host=host_mark(self.source),
            kafka=self.kafka,
            transactional_id=f"{progress}-{partition}" if self.is_exact else None,
            topic_id=topic_id,
            partition=partition,
            ends=ends,
            progress=progress,
            slice_bytes=min(self.copying.slice_bytes, _SLICE_BYTES),
            compression=self.copying.packing.compression,
            has_proof=self.run.proof,
        )


def check_map(copying: CopyRequest) -> None:
    """Reject an offset map in files.

    Raises:
        ConfigError: an offset map in files is requested.
    """
    if copying.offset_map:
        names = ", ".join(copying.progress(name) for name in copying.topics)
        raise ConfigError(
            f"offset_map={copying.offset_map!r}: a copy to a Kafka keeps its map there, in the "
            f"topic {names}; leave this out (--offset-map), and see `jobs.kafkaprogress.read_map`"
        )


def _work(spark: SparkSession, tasks: list[CopyTask], run: JobRun, report: JobReport) -> None:
    """Copy until everything is done or the budget is used up; any budget makes some progress."""
    before, after = Proof(), Proof()
    while tasks:
        budget = run.max_bytes - report.done_bytes
        if run.max_bytes and report.slices and budget < _LEAST_BYTES:
            break
        wave, tasks = tasks[: 4 * slots(spark)], tasks[4 * slots(spark) :]
        bounded = wave
        if run.max_bytes:
            most = max(budget // _LEAST_BYTES, 1)
            wave, tasks = wave[:most], wave[most:] + tasks
            bounded = [within(task, budget // len(wave)) for task in wave]
        for task, done in zip(wave, run_tasks(spark, copy_partition, bounded), strict=True):
            before, after = before + done.before, after + done.after
            report.done_bytes += done.bytes
            report.slices += done.slices
            if not done.is_all:
                tasks.append(task)
        total = max(report.plan.bytes, report.done_bytes)
        run.progress(JobStep(report.done_bytes, total, f"{before.rows:,} records"))
    report.facts["rows"] = before.rows
    if run.proof:
        report.before, report.after = before, after
        report.check()


def within(task: CopyTask, share: int) -> CopyTask:
    """Limit the bytes that a task reads and the size of its commits."""
    return replace(task, max_bytes=share, slice_bytes=min(task.slice_bytes, share))


def _measure_left(log: BlockingLog, topics: Sequence[Topic], reached: _ByPlace) -> _ByPlace:
    """Return the remaining bytes of each partition after the offset that its copy has reached."""
    wanted = []
    for topic in topics:
        for partition in topic.partitions:
            begin = reached.get((topic.id, partition.index), partition.log_start)
            check_reached(topic.name, partition, begin)
            end = end_of(partition, is_committed=True)
            if begin < end:
                wanted.append(OffsetRange(topic.id, partition.index, begin, end))
    planner = ReadPlanner(log.log)
    planned = log.run(planner.plan(wanted))
    if planner.gaps:
        refuse(planner.gaps)
    sizes = {(range_.topic_id, range_.partition): range_.size for range_ in planned}
    places = [(range_.topic_id, range_.partition) for range_ in wanted]
    return {place: sizes.get(place, 0) for place in places}


# Code that works on the target Kafka.


async def _find_reached(
    kafka: ClientSettings, copying: CopyRequest, topics: Sequence[Topic]
) -> _ByPlace:
    """Return the next offset of each partition with a started copy, without creating anything."""
    reached_offsets = {}
    async with Client(kafka) as client:
        there = set(await client.admin.list_topics())
        for topic in topics:
            name, copy = copying.progress(topic.name), copying.targets[topic.name]
            if name not in there:
                continue
            identity = _id(await client.topic(copy)) if copy in there else _GONE
            ends = CopyEnds(topic.name, uuid_text(topic.id), copy, identity)
            for index in (await client.topic(name)).partitions:
                reached = await read_progress(client, TopicPartition(name, index), ends)
                if reached.next >= 0:
                    reached_offsets[topic.id, index] = reached.next
    return reached_offsets


async def _prepare(
    kafka: ClientSettings, copying: CopyRequest, topics: Sequence[Topic]
) -> dict[bytes, CopyEnds]:
    """Create missing topics and missing partitions."""
    ends = {}
    async with Client(kafka) as client:
        for topic in topics:
            count = len(topic.partitions)
            progress, copy = copying.progress(topic.name), copying.targets[topic.name]
            compacted = {"cleanup.policy": "compact"}
            await _make(client, NewTopic(name=progress, partitions=count, configs=compacted))
            kept = configs_there(topic)
            view = await _make(client, NewTopic(name=copy, partitions=count, configs=kept))
            ends[topic.id] = CopyEnds(topic.name, uuid_text(topic.id), copy, _id(view))
    return ends


def configs_there(topic: Topic) -> dict[str, str]:
    """Return the settings of a topic's copy in a Kafka."""
    kept = select_configs(topic).items()
    return {name: value for name, value in kept if not name.startswith(_NOT_KEPT)}


async def _make(client: Client, new: NewTopic) -> TopicView:
    try:
        await client.admin.create_topics([new])
    except ApiError as error:
        if error.code is ErrorCode.INVALID_CONFIG:
            text = f"{error.text}; make the topic there, with what it can have, and begin again"
            raise ApiError(error.code, text) from error
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    view = await client.topic(new.name)
    if len(view.partitions) < new.partitions:
        await client.admin.create_partitions(new.name, new.partitions)
    return view


def _id(view: TopicView) -> str:
    return "" if view.id == ZERO else uuid_text(view.id)
