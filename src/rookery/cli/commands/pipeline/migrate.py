"""`rookery pipeline migrate`: renames columns in tables of an earlier release."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.fields import positional


@dataclass(frozen=True, kw_only=True)
class MigratePipeline(CommandArguments):
    """The pipeline whose tables to migrate."""

    file: str = positional("FILE", "the declaration of the pipeline (TOML)")


def run(args: MigratePipeline) -> int:
    """Rename columns in tables that an earlier release wrote."""
    from rookery.pipeline.batch.engine import BatchPlan
    from rookery.pipeline.declaration.load import load
    from rookery.pipeline.reprocess.migration import migrations

    pipeline = load(Path(args.file))
    done = {}
    for migration in migrations(pipeline, BatchPlan.of(pipeline).sinks):
        migration.run(may_rewrite=True)
        done[migration.place] = dict(migration.columns)
    if args.json:
        print_json(done)
        return 0
    for table, columns in done.items():
        print(f"{table}: {', '.join(f'{old} is {new}' for old, new in columns.items())}")
    print(f"{len(done)} tables migrated")
    return 0


COMMAND = Command(
    arguments=MigratePipeline,
    run=run,
    summary="Rename columns in tables that an earlier release wrote.",
    example="rookery pipeline migrate birds.toml",
)
