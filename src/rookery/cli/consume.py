"""`rookery consume`: the records of a topic as lines, from any place, once or for ever."""

from __future__ import annotations

import argparse

from rookery.cli import arguments
from rookery.cli.command import Subparsers, add_command


def add(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = add_command(
        subparsers,
        "consume",
        run,
        summary="Print the records of a topic; up to its end, or with --follow for ever.",
        example="rookery consume birds --from 15m --follow --format json",
    )
    parser.add_argument("topic", metavar="TOPIC", help="what to read")
    parser.add_argument(
        "--from",
        dest="start",
        default="beginning",
        metavar="WHERE",
        help="beginning (default), end, an offset, a time such as 2026-01-31T12:00:00Z, or a span "
        "back from now such as 30s, 15m, 2h or 7d",
    )
    parser.add_argument("-F", "--follow", action="store_true", help="wait for records to come")
    parser.add_argument(
        "-n", "--max", type=arguments.count, metavar="N", help="stop after so many records"
    )
    parser.add_argument(
        "-p",
        "--partitions",
        type=arguments.partitions,
        metavar="0,2,5-7",
        help="which ones; default: all",
    )
    parser.add_argument(
        "--format",
        choices=("value", "key-value", "json", "raw"),
        default="value",
        help="value or key-value: a line each; json: a line with everything; raw: the values' "
        "bytes and nothing between them",
    )
    parser.add_argument(
        "-k",
        "--key-separator",
        default="\\t",
        metavar="TEXT",
        help="between key and value; \\t is a tab (default)",
    )
    parser.add_argument(
        "--committed", action="store_true", help="leave out open and aborted transactions"
    )
    arguments.add_connection(parser)


def run(args: argparse.Namespace) -> int:
    """Print records; `--json` is the same as `--format json`."""
    from rookery.cli.actions.consume import consume  # noqa: PLC0415 (only when it runs)

    return consume(args)
