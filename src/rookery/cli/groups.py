"""`rookery groups`: list, describe, reset and delete the consumer groups of any Kafka."""

from __future__ import annotations

import argparse

from rookery.cli import arguments
from rookery.cli.command import Subparsers, action
from rookery.cli.nested import add_nest, add_nested


def add(subparsers: Subparsers) -> None:
    """Declare the command."""
    nest = add_nest(
        subparsers,
        "groups",
        summary="List, describe, reset and delete consumer groups.",
        example="rookery groups describe watchers",
    )
    for add_one in (_add_list, _add_describe, _add_reset, _add_delete):
        arguments.add_connection(add_one(nest))


def _add_list(nest: Subparsers) -> argparse.ArgumentParser:
    parser = add_nested(
        nest,
        "list",
        action("groups", "list_groups"),
        summary="List all groups.",
        example="rookery groups list --state stable --state empty",
    )
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="STATE",
        help="only groups in this state, such as stable or empty; may be repeated",
    )
    return parser


def _add_describe(nest: Subparsers) -> argparse.ArgumentParser:
    parser = add_nested(
        nest,
        "describe",
        action("groups", "describe"),
        summary="Show members, offsets and lag of groups.",
        example="rookery groups describe watchers --json",
    )
    parser.add_argument("groups", nargs="+", metavar="GROUP", help="their names")
    return parser


def _add_reset(nest: Subparsers) -> argparse.ArgumentParser:
    parser = add_nested(
        nest,
        "reset",
        action("resetting", "reset"),
        summary="Move the offsets of a group that has no members; without --execute, only show.",
        example="rookery groups reset watchers --topic birds:0,2 --to-earliest --execute",
    )
    parser.add_argument("group", metavar="GROUP", help="its name")
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:PARTITIONS]",
        help="only this one, such as birds or birds:0,2-4; may be repeated (default: all that the "
        "group has read)",
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="to the first record")
    where.add_argument("--to-latest", action="store_true", help="behind the last record")
    where.add_argument(
        "--to-offset", type=arguments.count_or_none, metavar="N", help="to an offset"
    )
    where.add_argument(
        "--to-datetime",
        metavar="TIME",
        help="to the first record that is not older, such as 2026-01-31T12:00:00Z",
    )
    where.add_argument(
        "--by-duration",
        metavar="SPAN",
        help="the same, so long before now: 30s, 15m, 2h, 7d or PT1H30M",
    )
    where.add_argument(
        "--shift-by", type=int, metavar="N", help="so many records on, or back if below 0"
    )
    parser.add_argument("--execute", action="store_true", help="do it")
    return parser


def _add_delete(nest: Subparsers) -> argparse.ArgumentParser:
    parser = add_nested(
        nest,
        "delete",
        action("groups", "delete"),
        summary="Delete groups that have no members, with all their offsets.",
        example="rookery groups delete watchers --if-exists",
    )
    parser.add_argument("groups", nargs="+", metavar="GROUP", help="their names")
    parser.add_argument("--if-exists", action="store_true", help="one that is gone is no error")
    return parser
