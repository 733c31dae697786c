"""Code that the commands of `rookery pipeline` share: sessions, signals, and progress."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT, SIGTERM, signal
from threading import Thread
from typing import TYPE_CHECKING

from rookery.cli.command import print_json
from rookery.cli.options.spark import SparkOptions
from rookery.pipeline.declaration.spec import Pipeline
from rookery.pipeline.metrics import BatchMetrics, MetricsFile
from rookery.tables.folder import TableFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rookery.pipeline.run import BatchPace


@contextmanager
def end_on_signals(pace: BatchPace) -> Iterator[None]:
    """Let an interrupt or SIGTERM end a run after the batch under way; a second one, at once."""

    def end() -> None:
        pace.end.set()
        print("ending after this batch; once more: at once", file=sys.stderr, flush=True)

    def take(*_: object) -> None:
        if pace.end.is_set():
            raise KeyboardInterrupt
        # Not in this thread, which may be waiting for that event, or printing.
        Thread(target=end).start()

    before = {number: signal(number, take) for number in (SIGINT, SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal(number, handler)


def metrics_path(pipeline: Pipeline) -> Path:
    """Return the path of a pipeline's metrics: in its state, or here if the state is in a store."""
    folder = TableFolder(pipeline.state)
    if folder.path is not None:
        return folder.path / "metrics.jsonl"
    return Path(".rookery") / pipeline.name / "metrics.jsonl"


class BatchProgress:
    """Reports each batch when it is complete, and stores its figures."""

    def __init__(self, pipeline: Pipeline, *, is_json: bool, is_recorded: bool = True) -> None:
        self._file = MetricsFile(metrics_path(pipeline)) if is_recorded else None
        self._is_json = is_json
        self._batches = 0
        self._rows = 0

    def report(self, metrics: BatchMetrics) -> None:
        """Report a batch."""
        if self._file is not None:
            self._file.write(metrics)
        self._batches += 1
        self._rows += metrics.rows.get("bronze", 0)
        if not self._is_json:
            took = sum(metrics.phases_ms.values()) / 1000
            rows = ", ".join(f"{layer} {count}" for layer, count in metrics.rows.items() if count)
            lag = sum(metrics.lag.values())
            begun = " (begun by an earlier run)" if metrics.is_recovered else ""
            print(
                f"batch {metrics.batch}{begun}: {rows}; {took:.2f} s, {lag} wait",
                file=sys.stderr,
                flush=True,
            )

    def end(self, more: Mapping[str, object]) -> None:
        """Report the whole run."""
        if self._is_json:
            print_json({"batches": self._batches, "records": self._rows, **more})
        else:
            print(f"{self._rows} records in {self._batches} batches")


@contextmanager
def session_for_gold(options: SparkOptions, pipeline: Pipeline) -> Iterator[SparkSession | None]:
    """Start Spark if there is SQL to check; stop it afterwards unless it was already running."""
    if not pipeline.gold:
        yield None
        return
    from pyspark.sql import SparkSession

    before = SparkSession.getActiveSession()
    spark = start_session(options, pipeline)
    try:
        yield spark
    finally:
        if before is None:
            spark.stop()


def start_session(options: SparkOptions, pipeline: Pipeline) -> SparkSession:
    """Start Spark for a pipeline."""
    from rookery.cli.sparkplace import find_archive
    from rookery.spark.sparksession import own_tuning, session

    # Its bar would overwrite the lines about batches.
    settings = {"spark.ui.showConsoleProgress": "false", **dict(options.conf)}
    functions = [decode.function for decode in pipeline.topics.values() if decode.function]
    modules = [function.partition(":")[0] for function in functions]
    return session(
        f"rookery-{pipeline.name}",
        options.master,
        settings=settings,
        archive=find_archive(options, modules),
        can_plan_topics=False,
        tuning=own_tuning(),
    )
