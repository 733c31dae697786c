"""`rookery job replay`."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.cli.command import Command
from rookery.cli.options.fields import option, positional
from rookery.cli.options.jobs import FillArguments, check_partitions


@dataclass(frozen=True, kw_only=True)
class ReplayIntoTopic(FillArguments):
    """From which topics, into which."""

    topics: tuple[str, ...] = positional("TOPIC", "of one time, the first first", nargs="+")
    to: str = option("--to", required=True, metavar="NEW", help="the new topic")
    offset_map: str = option(
        "--offset-map",
        default="",
        metavar="FOLDER",
        help="a folder, or a URL of one, for Parquet files with the old and new offsets "
        "(default: none)",
    )
    partitions: int = option(
        "--partitions",
        type=int,
        default=1,
        metavar="N",
        help="of the new topic; with more than one, each is in order (default: %(default)s)",
    )

    def check(self) -> None:
        """Check what argparse cannot.

        Raises:
            ConfigError: a number is out of bounds.
        """
        super().check()
        check_partitions("--partitions", self.partitions, 1)


def run(args: ReplayIntoTopic) -> int:
    """Write records in the order of time."""
    from rookery import jobs
    from rookery.cli.jobs import run_job
    from rookery.direct.layout import Packing
    from rookery.jobs import Into

    packing = Packing(compression=args.compression)
    into = Into(args.to, args.partitions, args.offset_map, packing, args.slice_bytes)
    return run_job(
        "replay",
        args,
        lambda spark, place, plan: jobs.replay(spark, place, args.topics, into, plan),
    )


COMMAND = Command(
    arguments=ReplayIntoTopic,
    run=run,
    summary="Write the records of many topics into a new one, in the order of time.",
    example="rookery job replay clicks orders --to all-in-order",
)
