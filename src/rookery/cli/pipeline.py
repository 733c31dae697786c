"""`rookery pipeline`: topics to tables as a file declares it."""

from __future__ import annotations

import argparse

from rookery.cli import arguments
from rookery.cli.command import Subparsers, action
from rookery.cli.nested import add_nest, add_nested


def add(subparsers: Subparsers) -> None:
    """Declare the command."""
    nest = add_nest(
        subparsers,
        "pipeline",
        summary="Turn topics into tables on Spark, exactly once.",
        example="rookery pipeline run birds.toml --available-now",
    )
    for add_one in (_run, _plan, _backfill, _replay, _report, _upkeep, _migrate, _export):
        parser = add_one(nest)
        parser.add_argument("file", metavar="FILE", help="the pipeline's declaration, in TOML")


def _run(nest: Subparsers) -> argparse.ArgumentParser:
    parser = add_nested(
        nest,
        "run",
        action("pipeline", "run"),
        summary="Run a pipeline from where it was.",
        example="rookery pipeline run birds.toml --interval 5",
    )
    parser.add_argument("--available-now", action="store_true", help="read what there is, then end")
    parser.add_argument(
        "--interval",
        type=arguments.seconds,
        default=1.0,
        metavar="SECONDS",
        help="how often a batch is begun (default: %(default)g)",
    )
    arguments.add_spark(parser)
    return parser


def _plan(nest: Subparsers) -> argparse.ArgumentParser:
    parser = add_nested(
        nest,
        "plan",
        action("pipeline", "plan"),
        summary="Check a pipeline and show what a run would do; nothing is written.",
        example="rookery pipeline plan birds.toml",
    )
    arguments.add_spark(parser)
    return parser


def _backfill(nest: Subparsers) -> argparse.ArgumentParser:
    parser = add_nested(
        nest,
        "backfill",
        action("pipeline", "backfill"),
        summary="Add what lies before a pipeline's beginning, or compute silver anew.",
        example="rookery pipeline backfill birds.toml --rebuild",
    )
    parser.add_argument(
        "--rebuild",
        action="store_true",
        help="compute the silver tables anew and swap them; stop the pipeline first",
    )
    arguments.add_spark(parser)
    return parser


def _replay(nest: Subparsers) -> argparse.ArgumentParser:
    parser = add_nested(
        nest,
        "replay-dead-letters",
        action("pipeline", "replay"),
        summary="Decode dead letters again, after something was mended.",
        example="rookery pipeline replay-dead-letters birds.toml",
    )
    arguments.add_spark(parser)
    return parser


def _report(nest: Subparsers) -> argparse.ArgumentParser:
    parser = add_nested(
        nest,
        "report",
        action("pipeline", "report"),
        summary="Show a pipeline's figures, or write them as one HTML file with plots.",
        example="rookery pipeline report birds.toml --html birds.html",
    )
    parser.add_argument("--html", metavar="FILE", help="where to write it")
    return parser


def _upkeep(nest: Subparsers) -> argparse.ArgumentParser:
    return add_nested(
        nest,
        "upkeep",
        action("pipeline", "upkeep"),
        summary="Compact a pipeline's tables, expire old versions and delete their files.",
        example="rookery pipeline upkeep birds.toml",
    )


def _migrate(nest: Subparsers) -> argparse.ArgumentParser:
    return add_nested(
        nest,
        "migrate",
        action("pipeline", "migrate"),
        summary="Rename the columns of tables that an earlier release has written.",
        example="rookery pipeline migrate birds.toml",
    )


def _export(nest: Subparsers) -> argparse.ArgumentParser:
    parser = add_nested(
        nest,
        "export",
        action("pipeline", "export"),
        summary="Write the same as a project of Spark's Declarative Pipelines.",
        example="rookery pipeline export birds.toml --to birds-project",
    )
    parser.add_argument("--to", required=True, metavar="FOLDER", help="empty or absent")
    return parser
