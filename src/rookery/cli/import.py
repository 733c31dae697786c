# ruff: noqa: N999 (a module is named as its command is)
"""`rookery import`: a Kafka broker's data directory into object storage."""

from __future__ import annotations

from rookery.cli.arguments import count
from rookery.cli.command import Subparsers, action, add_command
from rookery.cli.storing import add_storage


def add(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = add_command(
        subparsers,
        "import",
        action("importing", "run"),
        summary="Bring a Kafka broker's data directory into the log, with every offset kept.",
        example="rookery import /var/lib/kafka/data --to s3://bucket/log\n"
        "  rookery import /disk1/kafka /disk2/kafka --to ./rookery-data --topic orders",
    )
    parser.add_argument(
        "directory",
        nargs="+",
        metavar="DIR",
        help="a directory that Kafka's log.dirs names; all of one broker, if it has several",
    )
    parser.add_argument(
        "--to",
        metavar="PLACE",
        help="the store (s3://bucket/prefix, file:///srv/rookery) or the folder of brokers on this "
        "host; a cluster begins there if there is none",
    )
    parser.add_argument(
        "--topic", action="append", metavar="NAME", help="only this topic; may be repeated"
    )
    parser.add_argument(
        "--properties",
        metavar="FILE",
        help="the broker's server.properties: topics keep what they inherit from it, such as how "
        "long records are kept",
    )
    parser.add_argument(
        "--skip-damaged",
        action="store_true",
        help="leave damaged batches out: readers pass over their offsets",
    )
    parser.add_argument(
        "--segment-bytes",
        type=count,
        default=64 * 1024 * 1024,
        metavar="BYTES",
        help="the size of segments in the store (default: 64Mi)",
    )
    parser.add_argument(
        "--no-verify", action="store_true", help="do not read everything back at the end"
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    add_storage(parser)
