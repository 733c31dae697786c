"""`rookery job merge`: merges small objects into larger ones and segments."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.cli.command import Command
from rookery.cli.options.fields import positional
from rookery.cli.options.jobs import JobArguments


@dataclass(frozen=True, kw_only=True)
class MergeObjects(JobArguments):
    """Which topics."""

    topics: tuple[str, ...] = positional("TOPIC", "the topics (default: all)", nargs="*")


def run(args: MergeObjects) -> int:
    """Merge small objects into larger ones, and larger ones into segments."""
    from rookery import jobs
    from rookery.cli.jobs import run_job

    return run_job(
        "merge", args, lambda spark, place, plan: jobs.merge(spark, place, args.topics, plan)
    )


COMMAND = Command(
    arguments=MergeObjects,
    run=run,
    summary="Merge small objects into larger ones, and larger ones into segments.",
    example="rookery job merge --store s3://bucket/log",
)
