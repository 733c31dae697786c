"""What all measurements are given: Spark, how many rows to move, and where to report it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from objectparts.figures import Figure, Figures

from rookery.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SLOTS: Final = 2

Timed = Callable[[int], float]
"""Does something, in the round of that number, and returns how many seconds it took."""


@dataclass
class Scene:
    """How it is measured."""

    figures: Figures
    folder: Path
    rows: int
    rounds: int
    """The number of rounds, of which the best counts."""
    is_quick: bool
    commits: int = 5000
    """The commits of a table before freshness is measured again."""
    jars: str = ""
    """Jars that Spark is started with."""
    tuning: str = "all"
    """Changes to Spark's internals, as `spark.rookery.tuning` names them."""
    _spark: SparkSession | None = field(default=None, repr=False)

    @property
    def spark(self) -> SparkSession:
        """Return Spark on two cores of this host, started when it is first asked for."""
        if self._spark is None:
            self._spark = self._session({})
        return self._spark

    def restart(self, settings: Mapping[str, str], *, with_java: bool = False) -> None:
        """Start Spark again, with settings that can be made only then.

        Java stays, and with it the environment that it gives to Pythons, unless it is stopped.
        """
        self.stop()
        if with_java:
            _end_java()
        self._spark = self._session(settings)

    def named(self, name: str, store: str) -> str:
        """Let Spark's processes know a store by a name: secrets are not for options."""
        with self._config.open("a") as file:
            file.write(f"[clusters.{name}]\nstore = '{store}'\n")
        return name

    @property
    def _config(self) -> Path:
        return self.folder / "rookery.toml"

    def stop(self) -> None:
        """Stop Spark."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None

    def best(self, *runs: Timed) -> list[float]:
        """Return the shortest time of each: they take turns, after a round that does not count."""
        first = 0 if self.is_quick else 1
        for number in range(first):
            for run in runs:
                run(number)
        rounds = range(first, first + self.rounds)
        taken = [[run(number) for run in runs] for number in rounds]
        return [min(times) for times in zip(*taken, strict=True)]

    def add_rate(
        self,
        part: str,
        what: str,
        seconds: tuple[float, float],
        bounds: tuple[float, float | None],
    ) -> None:
        """Note how quickly all rows were done, by us and by the peer, and what the ratio must be.

        Args:
            part: the part of the run.
            what: was done.
            seconds: that it took us, and the peer.
            bounds: the floor and the goal of the ratio.
        """
        ours, peer = (self.rows / 1e6 / spent for spent in seconds)
        self.figures.add(Figure(part, what, ours, "M rows/s", peer, *bounds))

    def drop(self, name: str) -> None:
        """Remove a folder that no part needs any more."""
        shutil.rmtree(self.folder / name, ignore_errors=True)

    def _session(self, settings: Mapping[str, str]) -> SparkSession:
        ours = {
            "spark.driver.memory": "2g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={self.folder}",
            "spark.local.dir": str(self.folder / "local"),
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.log.level": "ERROR",
            "spark.ui.showConsoleProgress": "false",
        }
        if self.jars:
            ours["spark.jars"] = self.jars
        self._config.touch()
        os.environ["ROOKERY_CONFIG"] = str(self._config)
        return session(
            "bench", f"local[{SLOTS}]", settings={**ours, **settings}, tuning=self.tuning
        )


def _end_java() -> None:
    from pyspark import SparkContext  # noqa: PLC0415 (it takes a second)

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # it ends with that
        gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


def timed(work: Callable[[], object]) -> float:
    """Return how many seconds something takes."""
    begun = perf_counter()
    work()
    return perf_counter() - begun


def drain(frame: DataFrame) -> None:
    """Compute all rows and columns, and throw them away."""
    frame.write.format("noop").mode("overwrite").save()
