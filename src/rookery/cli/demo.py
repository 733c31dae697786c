"""`rookery demo`: a broker under load is killed and comes back; no record may be missing."""

from __future__ import annotations

import argparse
from importlib import import_module

from rookery.cli import arguments
from rookery.cli.command import Subparsers, add_command


def add(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = add_command(
        subparsers,
        "demo",
        run,
        summary="See it work: a million records, a killed broker, and nothing lost.",
        example="rookery demo --records 1M",
    )
    parser.add_argument(
        "--records",
        type=arguments.count,
        default=1_000_000,
        metavar="N",
        help="how many; 200k and 1M will do (default: %(default)s)",
    )
    parser.add_argument(
        "--durability",
        choices=("disk", "os"),
        default="disk",
        help="what a record has survived when it is acknowledged: a sync to disk (default), or a "
        "write to the operating system, as with Kafka",
    )

    parser.add_argument(
        "--tables",
        action="store_true",
        help="the other half instead: a topic to tables on Spark, the pipeline killed on the way",
    )
    parser.add_argument(
        "--report",
        default="rookery-report.html",
        metavar="FILE",
        help="where --tables leaves the pipeline's report (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Return 0 if every record came back once and in order."""
    module, name = ("demotables", "demo_tables") if args.tables else ("demo", "demo")
    return int(getattr(import_module(f"rookery.cli.actions.{module}"), name)(args))
