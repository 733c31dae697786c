"""Fills a new topic with records of other topics of the same cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from rookery.cluster.state.topics import Topic
from rookery.direct.blockinglog import BlockingLog
from rookery.direct.layout import PackSettings
from rookery.direct.place import ClusterAddress
from rookery.jobs.move.offsetmap import OffsetMapFolder
from rookery.jobs.move.pinnedtopics import PinnedTopics
from rookery.jobs.move.route import TopicRoute
from rookery.jobs.move.slicecutters import SLICE_BYTES, OffsetCutter, TimeCutter, check_slice_bytes
from rookery.jobs.move.topics import make_topic
from rookery.jobs.move.transfer import Transfer
from rookery.jobs.progress import Ledger
from rookery.jobs.report import JobPart, JobPlan, JobReport, JobRun, Requests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_READ_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FillTarget:
    """The topic that a job creates, and how it writes."""

    topic: str
    partitions: int = 1
    offset_map: str = ""
    """A folder, or its URL, for the offset map, with one Parquet file per slice; empty: none."""
    packing: PackSettings = field(default_factory=PackSettings)
    """How batches and objects are built."""
    slice_bytes: int = SLICE_BYTES
    """The approximate size of a commit."""

    def __post_init__(self) -> None:
        check_slice_bytes(self.slice_bytes)


class FillRequest(NamedTuple):
    """The sources that fill the topic."""

    job: str
    place: ClusterAddress
    sources: list[Topic]
    ledger: Ledger
    cutter: OffsetCutter | TimeCutter
    configs: Mapping[str, str]
    """The settings of the new topic."""


def fill(
    spark: SparkSession, log: BlockingLog, filling: FillRequest, into: FillTarget, run: JobRun
) -> JobReport:
    """Fill a topic, or continue an earlier run.

    Raises:
        ConfigError: the topics cannot be used this way.
        Conflict: another writer writes to the new topic, or another run of the job is active.
        Unavailable: the log cannot be read or written.
    """
    at = log.run(filling.ledger.read())
    size = filling.cutter.measure_rest(at.position)
    report = JobReport(_plan(filling, into, size, run), is_dry=run.dry_run)
    if run.dry_run:
        return report
    make_topic(log, into.topic, into.partitions, filling.configs, is_begun=bool(at.position))
    names = [source.name for source in filling.sources]
    transfer = Transfer(
        spark=spark,
        source=filling.place,
        target=filling.place,
        log=log,
        ledger=filling.ledger,
        route=TopicRoute(dict.fromkeys(names, into.topic), {into.topic: into.partitions}),
        cutter=filling.cutter,
        holding=PinnedTopics(log, filling.sources),
        run=run,
        packing=into.packing,
        offset_map=OffsetMapFolder(into.offset_map) if into.offset_map else None,
    )
    transfer.work(report, size)
    return report


def _plan(filling: FillRequest, into: FillTarget, size: int, run: JobRun) -> JobPlan:
    names = ", ".join(source.name for source in filling.sources)
    what = f"{names} to {into.topic} with {into.partitions} partitions"
    return JobPlan(filling.job, *divide_by_budget(what, size, run), estimate_requests(size, run))


def divide_by_budget(
    what: str, size: int, run: JobRun
) -> tuple[tuple[JobPart, ...], tuple[JobPart, ...]]:
    """Return the part of a piece of work that a run does, and the part that it leaves."""
    now = min(size, run.max_bytes) if run.max_bytes else size
    parts = (JobPart(what, now),) if now else ()
    return parts, (JobPart(what, size - now),) if size > now else ()


def estimate_requests(size: int, run: JobRun) -> Requests:
    """Estimate the store requests for moving `size` bytes."""
    now = min(size, run.max_bytes) if run.max_bytes else size
    reads = now // _READ_BYTES + 1 if now else 0
    puts = now // PackSettings().object_bytes + 1 if now else 0
    return Requests(reads * (2 if run.proof else 1), puts)
