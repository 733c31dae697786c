"""What `rookery pipeline` does."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from signal import SIGINT, SIGTERM, signal
from threading import Thread
from typing import TYPE_CHECKING

from rookery.cli.actions.sparkplace import find_archive
from rookery.cli.command import print_json
from rookery.pipeline.engine import Engine, Plan
from rookery.pipeline.load import load
from rookery.pipeline.manifests import Manifests
from rookery.pipeline.metrics import BatchMetrics, MetricsFile, read_metrics
from rookery.pipeline.migration import migrations
from rookery.pipeline.proof import prove_gold, prove_tables
from rookery.pipeline.spec import Pipeline
from rookery.pipeline.upkeep import keep_up
from rookery.tables.folder import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rookery.pipeline.run import Pace


def run(args: argparse.Namespace) -> int:
    """Run a pipeline, until it has read all or is interrupted."""
    from rookery.pipeline.gold import make_gold  # noqa: PLC0415 (Spark is heavy)
    from rookery.pipeline.run import Pace, run_pipeline  # noqa: PLC0415

    pipeline = load(Path(args.file))
    checked = Plan.of(pipeline)
    prove_tables(checked)  # Report faults before Spark starts.
    spark = _spark(args, pipeline)
    prove_gold(spark, checked)
    progress = _Progress(pipeline, is_json=args.json)
    pace = Pace(round(args.interval * 1000), args.available_now)
    with ended_by_signals(pace):
        engine: Engine = run_pipeline(spark, pipeline, pace, progress.tell)
        made = make_gold(spark, engine)
    progress.end({"gold": made})
    return 0


@contextmanager
def ended_by_signals(pace: Pace) -> Iterator[None]:
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


def plan(args: argparse.Namespace) -> int:
    """Show what a run would do."""
    from rookery.pipeline.positions import lag, starts  # noqa: PLC0415

    pipeline = load(Path(args.file))
    checked = Plan.of(pipeline)
    migrated = prove_tables(checked)
    with _spark_for_gold(args, pipeline) as spark:
        if spark is not None:
            prove_gold(spark, checked)
    manifests = Manifests(pipeline.state)
    last, origin = manifests.last(), manifests.origin()
    known = last or origin
    reached = known.reached if known else starts(pipeline.source)
    tables = {
        f"{sink.layer}: {sink.format} {sink.location.partition('?')[0]}": [
            f"{field.name} {field.type}" for field in checked.sinks[number]
        ]
        for number, sink in enumerate(pipeline.sinks)
        if number in checked.sinks
    }
    waiting = lag(pipeline.source, reached)
    found = {
        "name": pipeline.name,
        "batches": last.batch + 1 if last else 0,
        "next offsets": reached.ends,
        "waiting records": waiting,
        "tables": tables,
        "gold": [gold.name for gold in pipeline.gold],
        "renamed columns": {one.place: dict(one.columns) for one in migrated},
    }
    if args.json:
        print_json(found)
        return 0
    print(f"pipeline {pipeline.name}: {found['batches']} batches so far")
    for partition, count in waiting.items():
        print(f"  {partition}: {count} records wait")
    for table, columns in tables.items():
        print(f"  {table}\n    {', '.join(columns)}")
    for migration in migrated:
        print(f"  {migration.place}: the next run renames {', '.join(migration.columns)}")
    for gold in pipeline.gold:
        print(f"  gold: {gold.format} {gold.location.partition('?')[0]}, after each run")
    return 0


def backfill(args: argparse.Namespace) -> int:
    """Add what lies before the beginning, or rebuild."""
    from rookery.pipeline.backfill import backfill as fill  # noqa: PLC0415
    from rookery.pipeline.rebuild import rebuild  # noqa: PLC0415

    pipeline = load(Path(args.file))
    progress = _Progress(pipeline, is_json=args.json, is_recorded=False)
    spark = _spark(args, pipeline)
    if args.rebuild:
        rows = rebuild(spark, pipeline, progress.tell, MetricsFile(metrics_path(pipeline)).write)
    else:
        rows = fill(spark, pipeline, progress.tell)
    progress.end({"rows": rows})
    return 0


def replay(args: argparse.Namespace) -> int:
    """Replay dead letters."""
    from rookery.pipeline.replay import replay_dead_letters  # noqa: PLC0415

    pipeline = load(Path(args.file))
    rows = replay_dead_letters(_spark(args, pipeline), pipeline)
    mended, dead = rows.get("silver", 0), rows.get("dead-letters", 0)
    if args.json:
        print_json({"mended": mended, "dead": dead})
    else:
        print(f"{mended} dead letters are silver rows now, {dead} failed again")
    return 0


def report(args: argparse.Namespace) -> int:
    """Show figures, or write them as HTML."""
    from rookery.pipeline.report import html, summary, told  # noqa: PLC0415

    pipeline = load(Path(args.file))
    batches = list(read_metrics(metrics_path(pipeline)))
    if args.html:
        Path(args.html).write_text(html(pipeline.name, batches))
    if args.json:
        print_json({**summary(batches), "html": args.html})
        return 0
    for name, text in [*told(batches), *([("written", args.html)] if args.html else [])]:
        print(f"{name}: {text}")
    return 0


def upkeep(args: argparse.Namespace) -> int:
    """Keep the tables in shape."""
    pipeline = load(Path(args.file))
    done = {table: asdict(one) for table, one in keep_up(pipeline).items()}
    if args.json:
        print_json(done)
        return 0
    for table, figures in done.items():
        told = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in figures.items())
        print(f"{table}: {told}")
    return 0


def migrate(args: argparse.Namespace) -> int:
    """Rename the columns of tables that an earlier release has written."""
    pipeline = load(Path(args.file))
    done = {}
    for migration in migrations(pipeline, Plan.of(pipeline).sinks):
        migration.run(may_rewrite=True)
        done[migration.place] = dict(migration.columns)
    if args.json:
        print_json(done)
        return 0
    for table, columns in done.items():
        print(f"{table}: {', '.join(f'{old} is {new}' for old, new in columns.items())}")
    print(f"{len(done)} tables migrated")
    return 0


def export(args: argparse.Namespace) -> int:
    """Write a project of Declarative Pipelines."""
    from rookery.pipeline.export import export as write  # noqa: PLC0415

    files = [str(path) for path in write(load(Path(args.file)), Path(args.to))]
    if args.json:
        print_json(files)
    else:
        print("\n".join(files))
    return 0


def metrics_path(pipeline: Pipeline) -> Path:
    """Return where a pipeline's figures are: in its state, or here if that is in a store."""
    folder = Folder(pipeline.state)
    if folder.is_local:
        return Path(folder.name.removeprefix("file://")) / "metrics.jsonl"
    return Path(".rookery") / pipeline.name / "metrics.jsonl"


class _Progress:
    """Tells of each batch as it is done, and keeps its figures."""

    def __init__(self, pipeline: Pipeline, *, is_json: bool, is_recorded: bool = True) -> None:
        self._file = MetricsFile(metrics_path(pipeline)) if is_recorded else None
        self._is_json = is_json
        self._batches = 0
        self._rows = 0

    def tell(self, metrics: BatchMetrics) -> None:
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
        if self._is_json:
            print_json({"batches": self._batches, "records": self._rows, **more})
        else:
            print(f"{self._rows} records in {self._batches} batches")


@contextmanager
def _spark_for_gold(args: argparse.Namespace, pipeline: Pipeline) -> Iterator[SparkSession | None]:
    """Start Spark if there is SQL to be checked, and stop it unless it ran before."""
    if not pipeline.gold:
        yield None
        return
    from pyspark.sql import SparkSession  # noqa: PLC0415 (Spark is heavy)

    before = SparkSession.getActiveSession()
    spark = _spark(args, pipeline)
    try:
        yield spark
    finally:
        if before is None:
            spark.stop()


def _spark(args: argparse.Namespace, pipeline: Pipeline) -> SparkSession:
    from rookery.spark.session import session  # noqa: PLC0415

    # Its bar would be written over what is told of batches.
    settings = {"spark.ui.showConsoleProgress": "false", **dict(args.conf)}
    functions = [decode.function for decode in pipeline.topics.values() if decode.function]
    modules = [function.partition(":")[0] for function in functions]
    return session(
        f"rookery-{pipeline.name}",
        args.master,
        settings=settings,
        archive=find_archive(args, modules),
        can_plan_topics=False,
    )
