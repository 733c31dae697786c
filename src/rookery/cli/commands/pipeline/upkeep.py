"""`rookery pipeline upkeep`: compacts a pipeline's tables and deletes old versions."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.fields import positional


@dataclass(frozen=True, kw_only=True)
class UpkeepPipeline(CommandArguments):
    """The pipeline whose tables to maintain."""

    file: str = positional("FILE", "the declaration of the pipeline (TOML)")


def run(args: UpkeepPipeline) -> int:
    """Maintain the tables, and print what was done."""
    from rookery.pipeline.declaration.load import load
    from rookery.pipeline.upkeep import keep_up

    pipeline = load(Path(args.file))
    done = {table: asdict(report) for table, report in keep_up(pipeline).items()}
    if args.json:
        print_json(done)
        return 0
    for table, figures in done.items():
        text = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in figures.items())
        print(f"{table}: {text}")
    return 0


COMMAND = Command(
    arguments=UpkeepPipeline,
    run=run,
    summary="Compact a pipeline's tables, expire old versions and delete their files.",
    example="rookery pipeline upkeep birds.toml",
)
