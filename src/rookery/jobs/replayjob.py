"""Merges many topics into one in time order, at any scale.

A record's place is (highest timestamp so far in its partition, topic, partition, offset): the order
in which a time-ordered consumer reads them. Tasks have consecutive spans of time, and the commit
puts their objects in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rookery.direct.blockinglog import BlockingLog
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError
from rookery.jobs.move.slicecutters import TimeCutter, find_topics
from rookery.jobs.move.topicfill import FillRequest, FillTarget, fill
from rookery.jobs.progress import Ledger
from rookery.jobs.report import JobReport, JobRun
from rookery.jobs.tasks import slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "replay"


def replay(
    spark: SparkSession,
    place: ClusterAddress,
    topics: Sequence[str],
    into: FillTarget,
    run: JobRun | None = None,
) -> JobReport:
    """Write the records of topics into a new one, in time order.

    Records written to the topics after the job's first run are left to a job with another target.

    Args:
        spark: the session that runs the tasks.
        place: the location of the log.
        topics: the topics, in the order that breaks ties between equal timestamps.
        into: the new topic; the order holds within each of its partitions.
        run: budget, dry run, proof, progress.

    Raises:
        ConfigError: the topics cannot be used this way.
        Conflict: another writer writes to the new topic, or another run of the job is active.
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
