"""`rookery topics`: list, create, describe, delete and alter the topics of any Kafka."""

from __future__ import annotations

import argparse

from rookery.cli import arguments
from rookery.cli.command import Subparsers, action
from rookery.cli.nested import add_nest, add_nested


def add(subparsers: Subparsers) -> None:
    """Declare the command."""
    nest = add_nest(
        subparsers,
        "topics",
        summary="List, create, describe, delete and alter topics.",
        example="rookery topics create birds --partitions 4",
    )
    for add_one in (_add_list, _add_create, _add_describe, _add_delete, _add_alter):
        arguments.add_connection(add_one(nest))


def _add_list(nest: Subparsers) -> argparse.ArgumentParser:
    parser = add_nested(
        nest,
        "list",
        action("topics", "list_topics"),
        summary="List all topics.",
        example="rookery topics list --bootstrap kafka-1:9092",
    )
    parser.add_argument("--internal", action="store_true", help="the cluster's own topics, too")
    return parser


def _add_create(nest: Subparsers) -> argparse.ArgumentParser:
    parser = add_nested(
        nest,
        "create",
        action("topics", "create"),
        summary="Create topics, and wait until they can be used.",
        example="rookery topics create birds --partitions 4 --config retention.ms=3600000",
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="their names")
    parser.add_argument("-p", "--partitions", type=arguments.count, help="default: the broker's")
    parser.add_argument(
        "-r", "--replication-factor", type=arguments.count, help="default: the broker's"
    )
    _add_config(parser)
    parser.add_argument("--if-not-exists", action="store_true", help="one that exists is no error")
    parser.add_argument("--dry-run", action="store_true", help="only check whether it would work")
    return parser


def _add_describe(nest: Subparsers) -> argparse.ArgumentParser:
    parser = add_nested(
        nest,
        "describe",
        action("topics", "describe"),
        summary="Show partitions, leaders, offsets and configs of topics.",
        example="rookery topics describe birds --configs",
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="their names")
    parser.add_argument(
        "--configs", action="store_true", help="all configs, not only those that were set"
    )
    return parser


def _add_delete(nest: Subparsers) -> argparse.ArgumentParser:
    parser = add_nested(
        nest,
        "delete",
        action("topics", "delete"),
        summary="Delete topics with all their records.",
        example="rookery topics delete birds --if-exists",
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="their names")
    parser.add_argument("--if-exists", action="store_true", help="one that is gone is no error")
    return parser


def _add_alter(nest: Subparsers) -> argparse.ArgumentParser:
    parser = add_nested(
        nest,
        "alter",
        action("topics", "alter"),
        summary="Add partitions to a topic, set its configs, or take them back.",
        example="rookery topics alter birds --partitions 8 --delete-config retention.ms",
    )
    parser.add_argument("topic", metavar="TOPIC", help="its name")
    parser.add_argument(
        "-p", "--partitions", type=arguments.count, help="how many in all; never fewer than now"
    )
    _add_config(parser)
    parser.add_argument(
        "--delete-config",
        action="append",
        default=[],
        metavar="NAME",
        help="go back to the default; may be repeated",
    )
    return parser


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--config",
        action="append",
        default=[],
        type=arguments.setting,
        metavar="NAME=VALUE",
        help="set a config, such as retention.ms=3600000; may be repeated",
    )
