"""Topics of one cluster into another, with a map of offsets; each record once.

What a slice writes and how far the job has come are one event in the log of the cluster that is
written to, so neither cluster has to know of the other.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rookery.direct.blockinglog import BlockingLog
from rookery.direct.layout import PackSettings
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError
from rookery.jobs.offsetmap import OffsetMapFolder
from rookery.jobs.pinnedtopics import PinnedTopics
from rookery.jobs.progress import Ledger
from rookery.jobs.report import JobPlan, JobReport, JobRun
from rookery.jobs.route import TopicRoute
from rookery.jobs.slicecutters import SLICE_BYTES, OffsetCutter, check_slice_bytes, find_topics
from rookery.jobs.tasks import slots
from rookery.jobs.topicfill import budgeted, moving_requests
from rookery.jobs.topics import kept_configs, make_topic
from rookery.jobs.transfer import Transfer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "copy"
_MAX_NAME: Final = 249  # of a topic, in Kafka


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """What is copied, and how."""

    topics: Sequence[str]
    prefix: str = ""
    """Put before the names of the copies."""
    name: str = ""
    """Of the job, under which it goes on; empty: by the names of the topics."""
    offset_map: str = ""
    """A folder, or a URL of one, for the map of offsets, a Parquet file a slice; empty: none."""
    packing: PackSettings = field(default_factory=PackSettings)
    slice_bytes: int = SLICE_BYTES

    def __post_init__(self) -> None:
        check_slice_bytes(self.slice_bytes)

    @property
    def targets(self) -> dict[str, str]:
        """What each topic's copy is called."""
        return {name: f"{self.prefix}{name}" for name in self.topics}

    @property
    def job(self) -> str:
        """What the job is called."""
        return self.name or f"{NAME}:{self.prefix}:{','.join(self.topics)}"[:200]

    def progress(self, topic: str) -> str:
        """Return the topic of a Kafka that keeps how far the copy of a topic is."""
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
    """Copy topics into another cluster of ours; run again, it goes on with what is new.

    Args:
        spark: where the tasks run.
        source: where the log lies that is read.
        target: where the log lies that is written; it may be the same, with a prefix.
        copying: which topics, and how.
        run: budget, dry run, proof, progress.

    Raises:
        ConfigError: the topics cannot be used so.
        Conflict: somebody else writes to the copies, or another run of the job is at work.
        Unavailable: a log cannot be read or written.
    """
    run = run or JobRun()
    if source == target and not copying.prefix:
        raise ConfigError("copy: a topic cannot be copied onto itself; name another cluster")
    with BlockingLog(source, "job-copy") as log, BlockingLog(target, "job-copy") as written:
        topics = find_topics(log, copying.topics)
        ledger = Ledger(written.log, copying.job, NAME, copying.targets.values())
        at = written.run(ledger.read())
        cutter = OffsetCutter(
            log=log,
            topics=list(copying.topics),
            tasks=slots(spark),
            slice_bytes=copying.slice_bytes,
        )
        size = cutter.remaining(at.position)
        what = f"{', '.join(copying.topics)} to {target.origin().name}"
        report = JobReport(
            JobPlan(NAME, *budgeted(what, size, run), moving_requests(size, run)),
            is_dry=run.dry_run,
        )
        if run.dry_run:
            return report
        for topic in topics:
            name, count = copying.targets[topic.name], len(topic.partitions)
            make_topic(written, name, count, kept_configs(topic), is_begun=bool(at.position))
        counts = {copying.targets[topic.name]: len(topic.partitions) for topic in topics}
        transfer = Transfer(
            spark=spark,
            source=source,
            target=target,
            log=written,
            ledger=ledger,
            route=TopicRoute(copying.targets, counts, by="partition"),
            cutter=cutter,
            holding=PinnedTopics(log, topics),
            run=run,
            packing=copying.packing,
            offset_map=OffsetMapFolder(copying.offset_map) if copying.offset_map else None,
        )
        transfer.work(report, size)
        return report
