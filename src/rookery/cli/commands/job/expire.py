"""`rookery job expire`: deletes records that are past their topic's retention."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.cli.command import Command
from rookery.cli.options.fields import positional
from rookery.cli.options.jobs import JobArguments


@dataclass(frozen=True, kw_only=True)
class ExpireRecords(JobArguments):
    """Which topics."""

    topics: tuple[str, ...] = positional("TOPIC", "the topics (default: all)", nargs="*")


def run(args: ExpireRecords) -> int:
    """Delete records beyond their topic's retention."""
    from rookery import jobs
    from rookery.cli.jobs import run_job

    return run_job(
        "expire", args, lambda spark, place, plan: jobs.expire(spark, place, args.topics, plan)
    )


COMMAND = Command(
    arguments=ExpireRecords,
    run=run,
    summary="Delete records beyond their topic's retention.",
    example="rookery job expire --store s3://bucket/log",
)
