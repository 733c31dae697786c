"""Many topics into one, in the order of time, at any scale.

A record's place is (highest time so far in its partition, topic, partition, offset): the order in
which a time-ordered consumer sees them. Tasks have spans of time that follow each other, and the
commit puts their objects in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rookery.direct.blockinglog import BlockingLog
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError
from rookery.jobs.progress import Ledger
from rookery.jobs.report import JobReport, JobRun
from rookery.jobs.slicecutters import TimeCutter, find_topics
from rookery.jobs.tasks import slots
from rookery.jobs.topicfill import FillRequest, Into, fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "replay"


def replay(
    spark: SparkSession,
    place: ClusterAddress,
    topics: Sequence[str],
    into: Into,
    run: JobRun | None = None,
) -> JobReport:
    """Write the records of topics into a new one, in the order of time.

    What is written to the topics after the job's first run is left for a job with another target.

    Args:
        spark: where the tasks run.
        place: where the log lies.
        topics: in the order that decides between records of one time.
        into: the new topic; with one partition all of it is in order, with more each of them.
        run: budget, dry run, proof, progress.

    Raises:
        ConfigError: the topics cannot be used so.
        Conflict: somebody else writes to the new topic, or another run of the job is at work.
        Unavailable: the log cannot be read or written.
    """
    if into.topic in topics:
        raise ConfigError(f"topic {into.topic!r} cannot be replayed into itself; name a new one")
    with BlockingLog(place, "job-replay") as log:
        sources = find_topics(log, topics)
        kind = f"{NAME} of {','.join(topics)}"[:255]
        ledger = Ledger(log.log, f"{NAME}:{into.topic}", kind, [into.topic])
        cutter = TimeCutter(
            log=log, topics=list(topics), tasks=slots(spark), slice_bytes=into.slice_bytes
        )
        return fill(
            spark, log, FillRequest(NAME, place, sources, ledger, cutter, {}), into, run or JobRun()
        )
