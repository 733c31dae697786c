"""`rookery inspect`: what is in a Kafka broker's data directory."""

from __future__ import annotations

from rookery.cli.command import Subparsers, action, add_command


def add(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = add_command(
        subparsers,
        "inspect",
        action("inspect", "run"),
        summary="Show what a Kafka broker's data directory holds, and what is damaged in it.",
        example="rookery inspect /var/lib/kafka/data\n"
        "  rookery inspect /disk1/kafka /disk2/kafka --json",
    )
    parser.add_argument(
        "directory",
        nargs="+",
        metavar="DIR",
        help="a directory that Kafka's log.dirs names; all of one broker, if it has several",
    )
    parser.add_argument(
        "--quick", action="store_true", help="look only where the logs end, and read no batches"
    )
    parser.add_argument("--internal", action="store_true", help="Kafka's own topics, too")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
