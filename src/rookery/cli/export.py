"""`rookery export`: the log as the data directory of a Kafka broker."""

from __future__ import annotations

from rookery.cli.arguments import count
from rookery.cli.command import Subparsers, action, add_command
from rookery.cli.storing import add_storage


def add(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = add_command(
        subparsers,
        "export",
        action("exporting", "run"),
        summary="Write the log as a data directory that a Kafka broker starts on.",
        example="rookery export ./kafka-data --store s3://bucket/log\n"
        "  rookery export ./kafka-data --data ./rookery-data --topic orders",
    )
    parser.add_argument("directory", metavar="DIR", help="the directory to make; must not be there")
    parser.add_argument(
        "--topic", action="append", metavar="NAME", help="only this topic; may be repeated"
    )
    parser.add_argument(
        "--node-id", type=count, default=1, metavar="N", help="the broker's id (default: 1)"
    )
    parser.add_argument(
        "--controller",
        default="localhost:9093",
        metavar="HOST:PORT",
        help="its listener CONTROLLER (default: %(default)s)",
    )
    parser.add_argument(
        "--segment-bytes",
        type=count,
        default=1 << 30,
        metavar="BYTES",
        help="the size of its segments (default: 1024Mi)",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    add_storage(parser)
