"""`rookery job repartition`."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.cli.command import Command
from rookery.cli.options.fields import option, positional
from rookery.cli.options.jobs import FillArguments, check_partitions


@dataclass(frozen=True, kw_only=True)
class RepartitionTopic(FillArguments):
    """From which topic, into which."""

    topic: str = positional("TOPIC", "whose records")
    to: str = option("--to", required=True, metavar="NEW", help="the new topic")
    offset_map: str = option(
        "--offset-map",
        default="",
        metavar="FOLDER",
        help="a folder, or a URL of one, for Parquet files with the old and new offsets "
        "(default: NEW.offsets; none makes none)",
    )
    partitions: int = option(
        "--partitions", type=int, required=True, metavar="N", help="how many the new topic has"
    )

    def check(self) -> None:
        """Check what argparse cannot.

        Raises:
            ConfigError: a number is out of bounds.
        """
        super().check()
        check_partitions("--partitions", self.partitions, 1)


def run(args: RepartitionTopic) -> int:
    """Fill a new topic."""
    from rookery import jobs
    from rookery.cli.jobs import run_job
    from rookery.direct.layout import Packing
    from rookery.jobs import Into

    # Who moves consumers over needs the map, and it cannot be made later.
    offset_map = args.offset_map or f"{args.to}.offsets"
    into = Into(
        args.to,
        args.partitions,
        "" if offset_map == "none" else offset_map,
        Packing(compression=args.compression),
        args.slice_bytes,
    )
    return run_job(
        "repartition",
        args,
        lambda spark, place, plan: jobs.repartition(spark, place, args.topic, into, plan),
    )


COMMAND = Command(
    arguments=RepartitionTopic,
    run=run,
    summary="Fill a new topic with a topic's records, with another number of partitions, by key.",
    example="rookery job repartition orders --to orders-24 --partitions 24 --offset-map ./map",
)
