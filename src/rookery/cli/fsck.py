"""`rookery fsck`: check the whole log, and name every fault."""

from __future__ import annotations

import argparse
from importlib import import_module

from rookery.cli.command import Subparsers, add_command
from rookery.cli.storing import add_storage


def add(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = add_command(
        subparsers,
        "fsck",
        run,
        summary="Check the whole log against the cluster log, and name every fault.",
        example="rookery fsck --data ./rookery-data\n"
        "  rookery fsck --store s3://bucket/log --cluster etcd://10.0.0.5:2379 --quick",
    )
    add_storage(parser)
    parser.add_argument(
        "--quick", action="store_true", help="look at names and sizes only, and read no batches"
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run(args: argparse.Namespace) -> int:
    """Check; 0 if all is well, 1 if there are faults."""
    return int(import_module("rookery.cli.actions.fsck").run(args))
