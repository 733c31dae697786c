"""`rookery job compact`: keeps the last record of each key, in compacted topics."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.cli.command import Command
from rookery.cli.options.fields import positional
from rookery.cli.options.jobs import JobArguments


@dataclass(frozen=True, kw_only=True)
class CompactTopics(JobArguments):
    """Which topics."""

    topics: tuple[str, ...] = positional("TOPIC", "the topics (default: all)", nargs="*")


def run(args: CompactTopics) -> int:
    """Compact topics: keep only the last record of every key."""
    from rookery import jobs
    from rookery.cli.jobs import run_job

    return run_job(
        "compact", args, lambda spark, place, plan: jobs.compact(spark, place, args.topics, plan)
    )


COMMAND = Command(
    arguments=CompactTopics,
    run=run,
    summary="Compact topics: keep only the last record of every key.",
    example="rookery job compact --store s3://bucket/log",
)
