"""How a command declares itself, so that all of them look and answer alike."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TypeAlias

# The class is private to argparse, and generic for type checkers only: hence as text.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""Where a command adds itself."""

Run: TypeAlias = Callable[[argparse.Namespace], int]
"""What a command does; returns the exit code."""


def add_command(
    subparsers: Subparsers, name: str, run: Run, *, summary: str, example: str
) -> argparse.ArgumentParser:
    """Declare a command: its help has an example, and it can answer in JSON."""
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="answer in JSON, for scripts")
    parser.set_defaults(run=run)
    return parser


def action(module: str, name: str) -> Run:
    """Return what runs a function of a module in `cli/actions`, which is imported only then."""

    def run(args: argparse.Namespace) -> int:
        found: Run = getattr(import_module(f"rookery.cli.actions.{module}"), name)
        return found(args)

    return run


def print_json(value: object) -> None:
    """Print an answer for scripts."""
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")
