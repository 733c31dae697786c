"""`rookery pipeline report`: shows the figures of a pipeline, or writes them as HTML."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.fields import option, positional


@dataclass(frozen=True, kw_only=True)
class ReportPipeline(CommandArguments):
    """The pipeline or the file of metrics to report, and the page to write."""

    file: str = positional("FILE", "the declaration of the pipeline (TOML)")
    html: str | None = option("--html", metavar="FILE", help="the HTML file to write")


def run(args: ReportPipeline) -> int:
    """Show figures, or write them as HTML."""
    from rookery.cli.pipelines import metrics_path
    from rookery.pipeline.declaration.load import load
    from rookery.pipeline.metrics import read_metrics
    from rookery.pipeline.report import describe_batches, render_report, summarize_batches

    pipeline = load(Path(args.file))
    batches = list(read_metrics(metrics_path(pipeline)))
    if args.html:
        Path(args.html).write_text(render_report(pipeline.name, batches))
    if args.json:
        print_json({**summarize_batches(batches), "html": args.html})
        return 0
    for name, text in [
        *describe_batches(batches),
        *([("written", args.html)] if args.html else []),
    ]:
        print(f"{name}: {text}")
    return 0


COMMAND = Command(
    arguments=ReportPipeline,
    run=run,
    summary="Show the metrics of a pipeline, or write an HTML report with plots.",
    example="rookery pipeline report birds.toml --html birds.html",
)
