"""`rookery job replay`: writes the records of several topics into a new one, in time order."""

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
        help="the number of partitions of the new topic; each is in time order (default: "
        "%(default)s)",
    )


@dataclass(frozen=True, kw_only=True)
class ReplayIntoTopic(FillTopicArguments):
    """From which topics, into which."""

    topics: tuple[str, ...] = positional(
        "TOPIC", "the topics to read; at equal times, an earlier argument comes first", nargs="+"
    )
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
    summary="Write the records of several topics to a new topic in time order.",
    example="rookery job replay clicks orders --to all-in-order",
)
