"""`rookery pipeline backfill`: adds older records to a pipeline, or rebuilds its silver tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rookery.cli.command import Command, CommandArguments
from rookery.cli.options.fields import part, positional, switch
from rookery.cli.options.spark import SparkOptions


@dataclass(frozen=True, kw_only=True)
class BackfillPipeline(CommandArguments):
    """The pipeline to fill, and whether to compute its tables again."""

    file: str = positional("FILE", "the declaration of the pipeline (TOML)")
    rebuild: bool = switch(
        "--rebuild",
        help="recompute the silver tables and replace them; stop the pipeline first",
    )
    spark: SparkOptions = part(SparkOptions, "Spark")


def run(args: BackfillPipeline) -> int:
    """Add the records before the pipeline's origin, or rebuild its tables."""
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
    summary="Add records from before a pipeline's start, or recompute its silver tables.",
    example="rookery pipeline backfill birds.toml --rebuild",
)
