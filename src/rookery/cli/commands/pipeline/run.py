"""`rookery pipeline run`: runs a pipeline from where its last run stopped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rookery.cli.command import Command, CommandArguments
from rookery.cli.options.fields import option, part, positional, switch
from rookery.cli.options.spark import SparkOptions
from rookery.cli.options.values import seconds


@dataclass(frozen=True, kw_only=True)
class RunPipeline(CommandArguments):
    """The pipeline to run, and the interval between batches."""

    file: str = positional("FILE", "the declaration of the pipeline (TOML)")
    available_now: bool = switch("--available-now", help="process the available records, then stop")
    interval: float = option(
        "--interval",
        type=seconds,
        default=1.0,
        metavar="SECONDS",
        help="the interval between batches (default: %(default)g)",
    )
    spark: SparkOptions = part(SparkOptions, "Spark")


def run(args: RunPipeline) -> int:
    """Run a pipeline, until it has read all or is interrupted."""
    from rookery.cli.pipelines import BatchProgress, end_on_signals, start_session
    from rookery.pipeline.batch.engine import BatchPlan
    from rookery.pipeline.declaration.load import load
    from rookery.pipeline.gold import make_gold
    from rookery.pipeline.proof import prove_gold, prove_tables
    from rookery.pipeline.run import BatchPace, run_pipeline

    pipeline = load(Path(args.file))
    checked = BatchPlan.of(pipeline)
    prove_tables(checked)  # Report faults before Spark starts.
    spark = start_session(args.spark, pipeline)
    prove_gold(spark, checked)
    progress = BatchProgress(pipeline, is_json=args.json)
    pace = BatchPace(round(args.interval * 1000), args.available_now)
    with end_on_signals(pace):
        engine = run_pipeline(spark, pipeline, pace, progress.report)
        made = make_gold(spark, engine)
    progress.end({"gold": made})
    return 0


COMMAND = Command(
    arguments=RunPipeline,
    run=run,
    summary="Run a pipeline; resumes where the last run stopped.",
    example="rookery pipeline run birds.toml --interval 5",
)
