"""`rookery pipeline backfill`: add what is older than its beginning, or compute silver anew."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rookery.cli.command import Command, CommandArguments
from rookery.cli.options.fields import part, positional, switch
from rookery.cli.options.spark import SparkOptions


@dataclass(frozen=True, kw_only=True)
class BackfillPipeline(CommandArguments):
    """The pipeline to fill, and whether to compute its tables anew."""

    file: str = positional("FILE", "the pipeline's declaration, in TOML")
    rebuild: bool = switch(
        "--rebuild",
        help="compute the silver tables anew and swap them; stop the pipeline first",
    )
    spark: SparkOptions = part(SparkOptions, "Spark")


def run(args: BackfillPipeline) -> int:
    """Add what is before the beginning, or rebuild."""
    from rookery.cli.pipelines import BatchProgress, metrics_path, start_session
    from rookery.pipeline.declaration.load import load
    from rookery.pipeline.metrics import MetricsFile
    from rookery.pipeline.reprocess.backfill import backfill
    from rookery.pipeline.reprocess.rebuild import rebuild

    pipeline = load(Path(args.file))
    progress = BatchProgress(pipeline, is_json=args.json, is_recorded=False)
    spark = start_session(args.spark, pipeline)
    if args.rebuild:
        record = MetricsFile(metrics_path(pipeline)).write
        rows = rebuild(spark, pipeline, progress.report, record)
    else:
        rows = backfill(spark, pipeline, progress.report)
    progress.end({"rows": rows})
    return 0


COMMAND = Command(
    arguments=BackfillPipeline,
    run=run,
    summary="Add what lies before a pipeline's beginning, or compute silver anew.",
    example="rookery pipeline backfill birds.toml --rebuild",
)
