"""The `rookery` command: finds its subcommands in this folder.

A subcommand is a module with `add(subparsers)` and `run(args) -> int`. All of them are imported for
`rookery --help`, so each imports what is heavy only when it runs.

Exit codes: 0 all is well, 1 it is not, 2 a setting or argument must be changed.
"""

from __future__ import annotations

import argparse
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from rookery.errors import ConfigError, Error

if TYPE_CHECKING:
    from rookery.cli.command import Run

_SUMMARY = "A Kafka-compatible streaming platform whose log lives in object storage."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = make_parser()
    args = parser.parse_args(arguments)
    if args.version:
        print(f"rookery {_version()}")
        return 0
    if args.command is None:
        parser.print_help()
        return 2
    return _run(args.run, args)


def _run(run: Run, args: argparse.Namespace) -> int:
    try:
        code = run(args)
        sys.stdout.flush()
        return code
    except ConfigError as error:
        print(f"rookery {args.command}: {error}", file=sys.stderr)
        return 2
    except Error as error:
        print(f"rookery {args.command}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read our output (head, less) has seen enough; Python must not flush once more.
        sys.stdout = None
        return 1
    except KeyboardInterrupt:
        return 130


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="rookery", description=_SUMMARY, epilog="`rookery COMMAND --help` tells more."
    )
    parser.add_argument("--version", action="store_true", help="tell the version and exit")
    subparsers = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for module in _commands():
        module.add(subparsers)
    return parser


def _commands() -> Iterator[ModuleType]:
    folder = import_module("rookery.cli")
    for info in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."):
        if info.name != __name__:
            module = import_module(info.name)
            if hasattr(module, "add"):
                yield module


def _version() -> str:
    metadata = import_module("importlib.metadata")
    try:
        return str(metadata.version("rookery"))
    except metadata.PackageNotFoundError:
        return "(not installed: running from its source)"


if __name__ == "__main__":
    sys.exit(main())
