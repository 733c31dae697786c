"""`rookery segment`: look into the segments that the log is kept in, and make them now."""

from __future__ import annotations

import argparse
from importlib import import_module

from rookery.cli.command import Subparsers, action
from rookery.cli.nested import add_nest, add_nested
from rookery.cli.storing import add_storage


def add(subparsers: Subparsers) -> None:
    """Declare the command."""
    nest = add_nest(
        subparsers,
        "segment",
        summary="Look into segment files, or make them of what a topic holds now.",
        example="rookery segment dump segment-00000000000000000000.kfs",
    )
    parser = add_nested(
        nest,
        "dump",
        _dump,
        summary="Show what a segment holds, and name every fault in it.",
        example="rookery segment dump segment-00000000000000000000.kfs --records",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a .kfs file; the .index and .times beside it are read, too, if they are there",
    )
    parser.add_argument(
        "--store", metavar="URL", help="FILE is a key in this store, such as file:///srv/rookery"
    )
    parser.add_argument("--records", action="store_true", help="every record of every batch, too")
    _add_close(nest)


def _add_close(nest: Subparsers) -> None:
    parser = add_nested(
        nest,
        "close",
        action("segmentclose", "close"),
        summary="Make segments of what a topic holds now; the caretaker waits for size or age.",
        example="rookery segment close orders --partition 0 --data ./rookery-data",
    )
    parser.add_argument("topic", metavar="TOPIC", help="whose batches")
    parser.add_argument(
        "--partition",
        type=int,
        action="append",
        default=[],
        metavar="N",
        help="only this partition; may be repeated (default: all)",
    )
    add_storage(parser)


def _dump(args: argparse.Namespace) -> int:
    return int(import_module("rookery.cli.actions.segment").dump(args))
