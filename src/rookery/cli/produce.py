"""`rookery produce`: lines of standard input or a file become records of a topic."""

from __future__ import annotations

import argparse

from rookery.cli import arguments
from rookery.cli.command import Subparsers, add_command


def add(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = add_command(
        subparsers,
        "produce",
        run,
        summary="Send lines as records to a topic.",
        example="rookery produce birds --key-separator : --file sightings.txt\n"
        """  echo '{"key": "k", "value": {"id": 1}}' | rookery produce birds --format json""",
    )
    parser.add_argument("topic", metavar="TOPIC", help="where to")
    parser.add_argument(
        "-f", "--file", default="-", help="the lines; `-` is standard input (default)"
    )
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="text: a line is a value; json: as `rookery consume --format json` prints it, such as "
        '{"key": "corvus", "value": {"id": 1}}; other fields are refused',
    )
    parser.add_argument(
        "-k",
        "--key-separator",
        metavar="TEXT",
        help="what is before it in a line is the key; \\t is a tab",
    )
    parser.add_argument(
        "-H",
        "--header",
        action="append",
        default=[],
        type=arguments.setting,
        metavar="NAME=VALUE",
        help="a header for every record; may be repeated",
    )
    parser.add_argument(
        "-p", "--partition", type=arguments.count_or_none, help="which one; default: by the key"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no figures on standard error")
    arguments.add_producing(parser)
    arguments.add_connection(parser)


def run(args: argparse.Namespace) -> int:
    """Send everything, wait until it is stored, then say how much it was."""
    from rookery.cli.actions.produce import produce  # noqa: PLC0415 (only when it runs)

    return produce(args)
