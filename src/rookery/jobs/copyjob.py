"""Copies topics of one cluster to another, with an offset map; each record exactly once.

The records of a slice and the job's progress are one event in the target cluster's log, so neither
cluster needs to know about the other.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rookery.cluster.state.topics import Topic
from rookery.direct.blockinglog import BlockingLog
from rookery.direct.layout import PackSettings
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError
from rookery.jobs.move.offsetmap import OffsetMapFolder
from rookery.jobs.move.pinnedtopics import PinnedTopics
from rookery.jobs.move.route import TopicRoute
from rookery.jobs.move.slicecutters import SLICE_BYTES, OffsetCutter, check_slice_bytes, find_topics
from rookery.jobs.move.topicfill import divide_by_budget, estimate_requests
from rookery.jobs.move.topics import make_topic, select_configs
from rookery.jobs.move.transfer import Transfer
from rookery.jobs.progress import Ledger
from rookery.jobs.report import JobPlan, JobReport, JobRun
from rookery.jobs.tasks import slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "copy"
_MAX_NAME: Final = 249  # the maximum length of a topic name in Kafka


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """The topics to copy, and how to copy them."""

    topics: Sequence[str]
    prefix: str = ""
    """The prefix of the copies' names."""
    name: str = ""
    """The name of the job, by which it resumes; empty: derived from the topics."""
    offset_map: str = ""
    """A folder, or its URL, for the offset map, with one Parquet file per slice; empty: none."""
    packing: PackSettings = field(default_factory=PackSettings)
    slice_bytes: int = SLICE_BYTES

    def __post_init__(self) -> None:
        check_slice_bytes(self.slice_bytes)

    @property
    def targets(self) -> dict[str, str]:
        """The name of each topic's copy."""
        return {name: f"{self.prefix}{name}" for name in self.topics}

    @property
    def job(self) -> str:
        """The name of the job."""
        return self.name or f"{NAME}:{self.prefix}:{','.join(self.topics)}"[:200]

    def progress(self, topic: str) -> str:
        """Return the topic in the target Kafka that stores the progress of a topic's copy."""
        name = re.sub(r"[^a-zA-Z0-9._-]", "-", f"rookery-{self.job}-{topic}")
        if len(name) <= _MAX_NAME:
            return name
        return f"rookery-{hashlib.sha256(name.encode()).hexdigest()}"


def copy(
    spark: SparkSession,
    source: ClusterAddress,
    target: ClusterAddress,
    copying: CopyRequest,
    run: JobRun | None = None,
) -> JobReport:
    """Copy topics into another Rookery cluster; a repeated run continues with new records.

    Args:
        spark: the session that runs the tasks.
        source: the location of the log to read.
        target: the location of the log to write; it can be the same, with a prefix.
        copying: the topics to copy, and how.
        run: budget, dry run, proof, progress.

    Raises:
        ConfigError: the topics cannot be copied this way.
        Conflict: another writer writes to the copies, or another run of the job is active.
        Unavailable: a log cannot be read or written.
    """
    run = run or JobRun()
    if source == target and not copying.prefix:
        raise ConfigError("copy: a topic cannot be copied onto itself; name another cluster")
    with BlockingLog(source, "job-copy") as log, BlockingLog(target, "job-copy") as written:
        topics = find_topics(log, copying.topics)
        ledger = Ledger(written.log, copying.job, NAME, copying.targets.values())
        at = written.run(ledger.read())
        cutter = _cutter(log, copying, tasks=slots(spark))
        size = cutter.measure_rest(at.position)
        report = _plan(copying, target, size, run)
        if run.dry_run:
            return report
        route = _make_copies(written, topics, copying, is_begun=bool(at.position))
        transfer = Transfer(
            spark=spark,
            source=source,
            target=target,
            log=written,
            ledger=ledger,
            route=route,
            cutter=cutter,
            holding=PinnedTopics(log, topics),
            run=run,
            packing=copying.packing,
            offset_map=OffsetMapFolder(copying.offset_map) if copying.offset_map else None,
        )
        transfer.work(report, size)
        return report


def _cutter(log: BlockingLog, copying: CopyRequest, *, tasks: int) -> OffsetCutter:
    return OffsetCutter(
        log=log,
        topics=list(copying.topics),
        tasks=tasks,
        slice_bytes=copying.slice_bytes,
    )


def _plan(copying: CopyRequest, target: ClusterAddress, size: int, run: JobRun) -> JobReport:
    """Return a report with the plan, before any work is done."""
    what = f"{', '.join(copying.topics)} to {target.origin().name}"
    return JobReport(
        JobPlan(NAME, *divide_by_budget(what, size, run), estimate_requests(size, run)),
        is_dry=run.dry_run,
    )


def _make_copies(
    written: BlockingLog, topics: Sequence[Topic], copying: CopyRequest, *, is_begun: bool
) -> TopicRoute:
    """Create the copies that are missing; return which topic and partition goes where."""
    for topic in topics:
        name, count = copying.targets[topic.name], len(topic.partitions)
        make_topic(written, name, count, select_configs(topic), is_begun=is_begun)
    counts = {copying.targets[topic.name]: len(topic.partitions) for topic in topics}
    return TopicRoute(copying.targets, counts, by="partition")
