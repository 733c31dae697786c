"""`rookery pipeline export`: writes a pipeline as a project of Spark's Declarative Pipelines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.fields import option, positional


@dataclass(frozen=True, kw_only=True)
class ExportPipeline(CommandArguments):
    """The pipeline to export, and its destination."""

    file: str = positional("FILE", "the declaration of the pipeline (TOML)")
    to: str = option(
        "--to", required=True, metavar="FOLDER", help="a folder that is empty or does not exist"
    )


def run(args: ExportPipeline) -> int:
    """Write a project of Declarative Pipelines."""
    from rookery.pipeline.declaration.export import export
    from rookery.pipeline.declaration.load import load

    files = [str(path) for path in export(load(Path(args.file)), Path(args.to))]
    if args.json:
        print_json(files)
    else:
        print("\n".join(files))
    return 0


COMMAND = Command(
    arguments=ExportPipeline,
    run=run,
    summary="Export a pipeline as a project of Spark Declarative Pipelines.",
    example="rookery pipeline export birds.toml --to birds-project",
)
