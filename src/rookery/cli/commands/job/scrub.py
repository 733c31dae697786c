"""`rookery job scrub`: reads the whole log and checks its checksums."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.cli.command import Command
from rookery.cli.options.fields import switch
from rookery.cli.options.jobs import JobArguments


@dataclass(frozen=True, kw_only=True)
class ScrubLog(JobArguments):
    """Where to begin."""

    restart: bool = switch("--restart", help="start again from the first object")


def run(args: ScrubLog) -> int:
    """Verify the checksums of all data; resumes where the last run stopped."""
    from rookery import jobs
    from rookery.cli.jobs import run_job

    return run_job(
        "scrub",
        args,
        lambda spark, place, plan: jobs.scrub(spark, place, plan, restart=args.restart),
    )


COMMAND = Command(
    arguments=ScrubLog,
    run=run,
    summary="Verify the checksums of all data; resumes where the last run stopped.",
    example="rookery job scrub --store s3://bucket/log --max-bytes 100GB",
)
