"""Repartitions a topic: fills a new topic by key, with an offset map.

There is no shuffle. A task reads a range of offsets and distributes its records over the new
partitions. The commit puts the tasks' objects in order. So the records of a key, which are all in
one partition of the old topic, keep their order in the new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rookery.direct.blockinglog import BlockingLog
from rookery.direct.place import ClusterAddress
from rookery.jobs.move.slicecutters import OffsetCutter, find_topics
from rookery.jobs.move.topicfill import FillRequest, FillTarget, fill
from rookery.jobs.move.topics import select_configs
from rookery.jobs.progress import Ledger
from rookery.jobs.report import JobReport, JobRun
from rookery.jobs.tasks import slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "repartition"


def repartition(
    spark: SparkSession,
    place: ClusterAddress,
    topic: str,
    into: FillTarget,
    run: JobRun | None = None,
) -> JobReport:
    """Fill a new topic with a topic's records, distributed by key over its partitions.

    A repeated run resumes and includes records written since.

    Args:
        spark: the session that runs the tasks.
        place: the location of the log.
        topic: the source topic; the new one gets its settings.
        into: the new topic, its partitions, and the location of the map.
        run: budget, dry run, proof, progress.

    Raises:
        ConfigError: the topics cannot be used this way.
        Conflict: another writer writes to the new topic, or another run of the job is active.
        Unavailable: the log cannot be read or written.
    """
    with BlockingLog(place, "job-repartition") as log:
        [source] = find_topics(log, [topic])
        name = f"{NAME}:{topic}:{into.topic}"
        ledger = Ledger(log.log, name, f"{NAME} to {into.partitions}", [into.topic])
        cutter = OffsetCutter(
            log=log, topics=[topic], tasks=slots(spark), slice_bytes=into.slice_bytes
        )
        filling = FillRequest(NAME, place, [source], ledger, cutter, select_configs(source))
        return fill(spark, log, filling, into, run or JobRun())
