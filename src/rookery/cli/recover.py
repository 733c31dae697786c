"""`rookery recover`: rebuild a cluster log that was lost from what lies in the store."""

from __future__ import annotations

import argparse
from importlib import import_module

from rookery.cli.command import Subparsers, add_command
from rookery.cli.storing import add_storage


def add(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = add_command(
        subparsers,
        "recover",
        run,
        summary="Rebuild a cluster log that was lost, from what lies in the store.",
        example="rookery recover --store s3://bucket/log --cluster etcd://10.0.0.5:2379 --dry-run",
    )
    add_storage(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="tell what would be done, and write nothing"
    )
    parser.add_argument(
        "--yes", action="store_true", help="do it: all brokers are stopped, which nobody can check"
    )
    parser.add_argument(
        "--append-unplaced",
        action="store_true",
        help="batches whose offsets nothing tells get new ones, at the end of their partitions, "
        "in the order of their objects; otherwise they are set aside",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run(args: argparse.Namespace) -> int:
    """Recover; 0 if every record is back, 1 if some are not."""
    return int(import_module("rookery.cli.actions.recover").run(args))
