"""Many small tasks for a long time: workers of the light daemon keep their size and number.

    python -m tests.spark.soak --tasks 30000 --minutes 20

Tasks read a topic, or make garbage that only a collection finds; now and then one fails. Fails if
Python's workers become more, or if they or Java grow.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException

from rookery.spark import session
from rookery.testing.servedbroker import ServedBroker
from tests.spark.processes import JVM, family
from tests.spark.topics import fill_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

say: Final = partial(print, flush=True)
_WIDTH: Final = 64
"""Partitions of the topic, and tasks of a job."""
_FAILS: Final = 25
"""The interval of jobs that have a task that fails."""
_WORKER: Final = "daemon pyspark.worker"  # of both daemons
_GROWTH: Final = 1.15
_SLACK_MB: Final = 24


class Sample(NamedTuple):
    """What the processes were like at one time."""

    workers: int
    largest_mb: float
    """Of the workers."""
    java_mb: float


def main() -> int:
    """Run jobs until there were enough tasks, and enough time has passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=30_000)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument(
        "--daemon",
        default="rookery.spark.tuning.daemon",
        help="pyspark.daemon: Spark's own, to compare",
    )
    args = parser.parse_args()
    if os.getsid(0) != os.getpid():
        # Its processes are found as those of its session.
        again = [sys.executable, "-m", "tests.spark.soak", *sys.argv[1:]]
        return subprocess.run(again, start_new_session=True, check=False).returncode
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        spark, store = _session(Path(folder), args.daemon), _filled(Path(folder))
        samples = _run(spark, store, args.tasks, args.minutes * 60)
        spark.stop()
    return _judge(samples)


def _session(folder: Path, daemon: str) -> SparkSession:
    settings = {
        "spark.python.daemon.module": daemon,
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "OFF",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false",
    }
    return session("soak", "local[2]", settings=settings)


def _filled(folder: Path) -> str:
    with ServedBroker(folder / "log") as broker:
        values = [b"value %d" % number for number in range(_WIDTH * 20)]
        fill_topic(broker.bootstrap, "t", values, _WIDTH)
    return str(folder / "log")


def _run(spark: SparkSession, data: str, tasks: int, seconds: float) -> list[Sample]:
    begun, done, number = monotonic(), 0, 0
    samples: list[Sample] = []
    told = begun
    while done < tasks or monotonic() < begun + seconds:
        number += 1
        if number % 2:
            _read(spark, data)
        else:
            _litter(spark, is_failing=number % _FAILS == 0)
        done += _WIDTH
        samples.append(_sample())
        if monotonic() > told + 30:
            told = monotonic()
            say(f"{done:,} tasks in {told - begun:.0f} s: {samples[-1]}")
    say(f"{done:,} tasks in {number:,} jobs and {monotonic() - begun:.0f} s")
    return samples


def _read(spark: SparkSession, data: str) -> None:
    reader = spark.read.format("rookery").options(data=data, subscribe="t", minPartitions=_WIDTH)
    rows = reader.load().count()
    if rows != _WIDTH * 20:
        raise RuntimeError(f"{rows} rows were read of {_WIDTH * 20}")


def _litter(spark: SparkSession, *, is_failing: bool) -> None:
    # Nested, so that Spark sends it along.
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for _ in range(200):
                ring: list[object] = [bytes(1000)]
                ring.append(ring)
            if is_failing and 0 in batch.column(0).to_pylist():
                raise ValueError("a planned failure")
            yield batch

    rows = spark.range(0, _WIDTH, 1, _WIDTH).mapInArrow(work, "id long")
    try:
        rows.count()
    except PySparkException as error:
        if not is_failing or "a planned failure" not in str(error):
            raise


def _sample() -> Sample:
    leader = os.getsid(0)
    sizes = [_resident_mb(pid) for pid in family(leader, _WORKER)]
    java = sum(_resident_mb(pid) for pid in family(leader, JVM))
    return Sample(len(sizes), max(sizes, default=0.0), java)


def _resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * 4096 / 1e6


def _judge(samples: list[Sample]) -> int:
    """Compare the last quarter with the second: by then all is loaded, and Java has warmed up."""
    quarter = len(samples) // 4
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    is_flat = True
    for name in Sample._fields:
        before, after = (median(getattr(sample, name) for sample in some) for some in (early, late))
        bound = before * _GROWTH + (0 if name == "workers" else _SLACK_MB)
        is_flat &= after <= bound
        say(f"{name}: {before:.0f} in the second quarter, {after:.0f} in the last")
    say("flat" if is_flat else "NOT flat")
    return 0 if is_flat else 1


if __name__ == "__main__":
    sys.exit(main())
