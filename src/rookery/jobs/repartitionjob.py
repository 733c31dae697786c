"""A topic with another number of partitions: a new topic, filled by key, and a map of offsets.

Nothing is shuffled. A task reads a run of offsets and shares its records among the new partitions;
the commit puts the tasks' objects in order. So a key's records, which are all in one partition of
the old topic, are in their order in the new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rookery.direct.blockinglog import BlockingLog
from rookery.direct.place import ClusterAddress
from rookery.jobs.progress import Ledger
from rookery.jobs.report import JobReport, JobRun
from rookery.jobs.slicecutters import OffsetCutter, find_topics
from rookery.jobs.tasks import slots
from rookery.jobs.topicfill import FillRequest, Into, fill
from rookery.jobs.topics import kept_configs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "repartition"


def repartition(
    spark: SparkSession, place: ClusterAddress, topic: str, into: Into, run: JobRun | None = None
) -> JobReport:
    """Fill a new topic with a topic's records, shared by key among another number of partitions.

    Run again, it goes on where it was, and takes in what was written since.

    Args:
        spark: where the tasks run.
        place: where the log lies.
        topic: whose records; the new one has its settings.
        into: the new topic, its partitions, and where the map goes.
        run: budget, dry run, proof, progress.

    Raises:
        ConfigError: the topics cannot be used so.
        Conflict: somebody else writes to the new topic, or another run of the job is at work.
        Unavailable: the log cannot be read or written.
    """
    with BlockingLog(place, "job-repartition") as log:
        [source] = find_topics(log, [topic])
        name = f"{NAME}:{topic}:{into.topic}"
        ledger = Ledger(log.log, name, f"{NAME} to {into.partitions}", [into.topic])
        cutter = OffsetCutter(
            log=log, topics=[topic], tasks=slots(spark), slice_bytes=into.slice_bytes
        )
        filling = FillRequest(NAME, place, [source], ledger, cutter, kept_configs(source))
        return fill(spark, log, filling, into, run or JobRun())
