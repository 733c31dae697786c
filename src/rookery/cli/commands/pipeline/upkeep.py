"""`rookery pipeline upkeep`: keep its tables in shape."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.fields import positional


@dataclass(frozen=True, kw_only=True)
class UpkeepPipeline(CommandArguments):
    """Whose tables."""

    file: str = positional("FILE", "the pipeline's declaration, in TOML")


def run(args: UpkeepPipeline) -> int:
    """Keep the tables in shape."""
    from rookery.pipeline.declaration.load import load
    from rookery.pipeline.upkeep import keep_up

    pipeline = load(Path(args.file))
    done = {table: asdict(one) for table, one in keep_up(pipeline).items()}
    if args.json:
        print_json(done)
        return 0
    for table, figures in done.items():
        told = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in figures.items())
        print(f"{table}: {told}")
    return 0


COMMAND = Command(
    arguments=UpkeepPipeline,
    run=run,
    summary="Compact a pipeline's tables, expire old versions and delete their files.",
    example="rookery pipeline upkeep birds.toml",
)
