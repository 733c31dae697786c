"""`rookery pipeline replay-dead-letters`: decodes the dead letters of a pipeline again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.fields import part, positional
from rookery.cli.options.spark import SparkOptions


@dataclass(frozen=True, kw_only=True)
class ReplayDeadLetters(CommandArguments):
    """The pipeline whose dead letters to decode again."""

    file: str = positional("FILE", "the declaration of the pipeline (TOML)")
    spark: SparkOptions = part(SparkOptions, "Spark")


def run(args: ReplayDeadLetters) -> int:
    """Replay dead letters."""
    from rookery.cli.pipelines import start_session
    from rookery.pipeline.declaration.load import load
    from rookery.pipeline.reprocess.replay import replay_dead_letters

    pipeline = load(Path(args.file))
    rows = replay_dead_letters(start_session(args.spark, pipeline), pipeline)
    mended, dead = rows.get("silver", 0), rows.get("dead-letters", 0)
    if args.json:
        print_json({"mended": mended, "dead": dead})
    else:
        print(f"{mended} dead letters are silver rows now, {dead} failed again")
    return 0


COMMAND = Command(
    arguments=ReplayDeadLetters,
    run=run,
    summary="Decode dead letters again, for example after a schema was corrected.",
    example="rookery pipeline replay-dead-letters birds.toml",
)
