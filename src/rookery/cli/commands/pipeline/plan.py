"""`rookery pipeline plan`: checks a pipeline, and shows what a run would do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.fields import part, positional
from rookery.cli.options.spark import SparkOptions


@dataclass(frozen=True, kw_only=True)
class PlanPipeline(CommandArguments):
    """The pipeline to check."""

    file: str = positional("FILE", "the declaration of the pipeline (TOML)")
    spark: SparkOptions = part(SparkOptions, "Spark")


def run(args: PlanPipeline) -> int:
    """Show what a run would do."""
    from rookery.cli.pipelines import session_for_gold
    from rookery.pipeline.batch.engine import BatchPlan
    from rookery.pipeline.declaration.load import load
    from rookery.pipeline.manifests import Manifests
    from rookery.pipeline.positions import lag, starts
    from rookery.pipeline.proof import prove_gold, prove_tables

    pipeline = load(Path(args.file))
    checked = BatchPlan.of(pipeline)
    migrated = prove_tables(checked)
    with session_for_gold(args.spark, pipeline) as spark:
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
    plan = {
        "name": pipeline.name,
        "batches": last.batch + 1 if last else 0,
        "next offsets": reached.ends,
        "waiting records": waiting,
        "tables": tables,
        "gold": [gold.name for gold in pipeline.gold],
        "renamed columns": {renaming.place: dict(renaming.columns) for renaming in migrated},
    }
    if args.json:
        print_json(plan)
        return 0
    print(f"pipeline {pipeline.name}: {plan['batches']} batches so far")
    for partition, count in waiting.items():
        print(f"  {partition}: {count} records wait")
    for table, columns in tables.items():
        print(f"  {table}\n    {', '.join(columns)}")
    for migration in migrated:
        print(f"  {migration.place}: the next run renames {', '.join(migration.columns)}")
    for gold in pipeline.gold:
        print(f"  gold: {gold.format} {gold.location.partition('?')[0]}, after each run")
    return 0


COMMAND = Command(
    arguments=PlanPipeline,
    run=run,
    summary="Check a pipeline and show what a run would do, without writing.",
    example="rookery pipeline plan birds.toml",
)
