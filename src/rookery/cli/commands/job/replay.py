"""`rookery job replay`."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.cli.command import Command
from rookery.cli.options.fields import option, part, positional
from rookery.cli.options.jobs import FillTopicArguments, TargetTopic


@dataclass(frozen=True, kw_only=True)
class ReplayTarget(TargetTopic):
    """The new topic."""

    partitions: int = option(
        "--partitions",
        type=int,
        default=1,
        metavar="N",
        help="of the new topic; with more than one, each is in order (default: %(default)s)",
    )


@dataclass(frozen=True, kw_only=True)
class ReplayIntoTopic(FillTopicArguments):
    """From which topics, into which."""

    topics: tuple[str, ...] = positional("TOPIC", "of one time, the first first", nargs="+")
    target: TargetTopic = part(ReplayTarget)


def run(args: ReplayIntoTopic) -> int:
    """Write records in the order of time."""
    from rookery import jobs
    from rookery.cli.jobs import run_job

    return run_job(
        "replay",
        args,
        lambda spark, place, plan: jobs.replay(spark, place, args.topics, args.into(), plan),
    )


COMMAND = Command(
    arguments=ReplayIntoTopic,
    run=run,
    summary="Write the records of many topics into a new one, in the order of time.",
    example="rookery job replay clicks orders --to all-in-order",
)
