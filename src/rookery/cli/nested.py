"""Commands of a command, such as `rookery topics list`: declared like any other."""

from __future__ import annotations

import argparse

from rookery.cli.command import Run, Subparsers, add_command


def add_nest(subparsers: Subparsers, name: str, *, summary: str, example: str) -> Subparsers:
    """Declare a command that has commands of its own; return where they add themselves."""

    def run(_: argparse.Namespace) -> int:
        parser.print_help()
        return 2

    parser = add_command(subparsers, name, run, summary=summary, example=example)
    return parser.add_subparsers(title="commands", dest="subcommand", metavar="COMMAND")


def add_nested(
    subparsers: Subparsers, name: str, run: Run, *, summary: str, example: str
) -> argparse.ArgumentParser:
    """Declare one of them; `--json` may stand before its name or after it."""
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # A default would undo a --json that came before the name.
    parser.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="answer in JSON, for scripts",
    )
    parser.set_defaults(run=run)
    return parser
