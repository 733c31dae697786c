"""The `rookery` command: finds its commands in `cli/commands`.

A call imports only the module of its command. `rookery --help` imports the modules of all commands,
except subcommands. So each command imports heavy modules only when it runs.

Exit codes: 0 success, 1 failure, 2 a setting or argument must be changed, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rookery.cli import commands
from rookery.cli.command import add_commands
from rookery.errors import ConfigError, Error

_SUMMARY = "A Kafka-compatible streaming platform whose log lives in object storage."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = make_parser(words)
    parsed = parser.parse_args(words)
    if parsed.version:
        print(f"rookery {_version()}")
        return 0
    if parsed.command is None:
        parser.print_help()
        return 2
    return _run(parsed)


def _run(parsed: argparse.Namespace) -> int:
    try:
        code: int = parsed.run(parsed)
        sys.stdout.flush()
        return code
    except ConfigError as error:
        print(f"rookery {parsed.command}: {error}", file=sys.stderr)
        return 2
    except Error as error:
        print(f"rookery {parsed.command}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output (head, less) has closed it; Python must not flush it again.
        sys.stdout = None
        return 1
    except KeyboardInterrupt:
        return 130


def make_parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command that the words name; without words, that of all commands."""
    parser = argparse.ArgumentParser(
        prog="rookery",
        description=_SUMMARY,
        epilog="Run `rookery COMMAND --help` for the help of a command.",
    )
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    subparsers = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    add_commands(subparsers, commands, words)
    return parser


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("rookery")
    except metadata.PackageNotFoundError:
        return "(not installed: running from its source)"


if __name__ == "__main__":
    sys.exit(main())
