"""`rookery job repartition`: copies a topic into a new one with another number of partitions."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.cli.command import Command
from rookery.cli.options.fields import part, positional
from rookery.cli.options.jobs import FillTopicArguments, TargetTopic, offset_map_option


@dataclass(frozen=True, kw_only=True)
class RepartitionTarget(TargetTopic):
    """The new topic."""

    offset_map: str = offset_map_option("NEW.offsets; `none`: do not write them")

    @property
    def map_folder(self) -> str:
        """The folder for old and new offsets; empty if there is none."""
        # Consumers need the map to move to the new topic, and it cannot be made later.
        folder = self.offset_map or f"{self.to}.offsets"
        return "" if folder == "none" else folder


@dataclass(frozen=True, kw_only=True)
class RepartitionTopic(FillTopicArguments):
    """From which topic, into which."""

    topic: str = positional("TOPIC", "the topic to read")
    target: TargetTopic = part(RepartitionTarget)


def run(args: RepartitionTopic) -> int:
    """Fill a new topic."""
    from rookery import jobs
    from rookery.cli.jobs import run_job

    return run_job(
        "repartition",
        args,
        lambda spark, place, plan: jobs.repartition(spark, place, args.topic, args.into(), plan),
    )


COMMAND = Command(
    arguments=RepartitionTopic,
    run=run,
    summary="Copy a topic to a new topic with another number of partitions, by key.",
    example="rookery job repartition orders --to orders-24 --partitions 24 --offset-map ./map",
)
