"""`rookery replay`: topics as one stream in the order of time, to the terminal or to a file."""

from __future__ import annotations

import argparse

from rookery.cli import arguments
from rookery.cli.command import Subparsers, action, add_command
from rookery.cli.storing import add_storage

FORMATS = ("table", "json", "arrow", "parquet")


def add(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = add_command(
        subparsers,
        "replay",
        action("replay", "replay"),
        summary="Read topics in the order of time, all partitions merged into one stream.",
        example="rookery replay orders payments --from 1h --decode json --format parquet "
        "-o last-hour.parquet",
    )
    parser.add_argument(
        "topics", metavar="TOPIC", nargs="+", help="of equal times, the first named comes first"
    )
    _add_range(parser)
    _add_order(parser)
    _add_form(parser)
    arguments.add_connection(parser)
    add_storage(parser)


def _add_range(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to read")
    where = "a time such as 2026-01-31T12:00:00Z, or a span back from now such as 30s, 15m, 2h, 7d"
    group.add_argument(
        "--from",
        dest="start",
        default="beginning",
        metavar="WHERE",
        help=f"beginning (default), end, committed (by --group), {where}",
    )
    group.add_argument(
        "--to",
        dest="end",
        default="now",
        metavar="WHERE",
        help=f"now (default: where the partitions end at the start), {where}",
    )
    group.add_argument("-F", "--follow", action="store_true", help="then wait for rows to come")
    group.add_argument("--group", metavar="NAME", help="whose committed offsets; none are written")
    group.add_argument(
        "-n", "--max", type=arguments.count, metavar="N", help="stop after so many rows"
    )
    group.add_argument(
        "--uncommitted", action="store_true", help="also open and aborted transactions"
    )


def _add_order(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("order")
    group.add_argument(
        "--event-time",
        default="record",
        metavar="WHERE",
        help="record (default), header:NAME, or a field such as value.created_at",
    )
    group.add_argument(
        "--lateness",
        type=arguments.seconds,
        metavar="SECONDS",
        help="how much disorder inside a partition is put right",
    )
    group.add_argument(
        "--late", choices=("flag", "drop", "raise"), default="flag", help="default: %(default)s"
    )
    group.add_argument(
        "--speed",
        type=arguments.seconds,
        metavar="TIMES",
        help="as fast as it was written, times this; default: as fast as possible",
    )
    group.add_argument(
        "--memory",
        type=arguments.count,
        default=256 << 20,
        metavar="BYTES",
        help="the most that is held, such as 64Mi (default: 256Mi)",
    )


def _add_form(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to make of it")
    group.add_argument(
        "--decode",
        action="append",
        default=[],
        metavar="[TOPIC=]NAME",
        help="how values are read: raw, utf8 (default), json, avro, protobuf, arrow; for all "
        "topics or for one",
    )
    group.add_argument(
        "--schema",
        action="append",
        default=[],
        metavar="[TOPIC=]TEXT",
        help="their fields, such as 'id long, name string'; JSON without it is looked at first",
    )
    group.add_argument("--registry", metavar="URL", help="the schema registry, for Avro, Protobuf")
    group.add_argument(
        "--format",
        choices=FORMATS,
        default="table",
        help="table: for people; json: a line each; arrow: an IPC stream; parquet: a file",
    )
    group.add_argument("-o", "--output", metavar="FILE", help="where to; default: the terminal")
    group.add_argument("-q", "--quiet", action="store_true", help="show no progress")
