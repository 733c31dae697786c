"""The declaration of a command, so that all commands have the same flags, help and output.

A module in `cli/commands` is a command, and a folder there is a command with commands of its own.
Each has a `COMMAND`: the class of its arguments, the function that runs it, and its help.
"""

from __future__ import annotations

import argparse
import json
import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Generic, TypeAlias, TypeVar

from rookery.cli.options.fields import add_arguments, read_arguments

# The class is private to argparse, and generic for type checkers only: hence as text.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""Where a command adds itself."""


@dataclass(frozen=True, kw_only=True)
class CommandArguments:
    """The arguments that all commands have."""

    json: bool = False
    """Whether to answer in JSON."""


A = TypeVar("A", bound=CommandArguments)


@dataclass(frozen=True, kw_only=True)
class Command(Generic[A]):
    """A command that does something.

    Its module is imported for `--help`, so it imports heavy modules only when it runs.
    """

    arguments: type[A]
    run: Callable[[A], int]
    """Does it; returns the exit code."""
    summary: str
    example: str

    def add_to(
        self, subparsers: Subparsers, name: str, *, is_called: bool, is_nested: bool
    ) -> None:
        """Add a parser for the command; one that is not called needs no arguments."""
        parser = _add_parser(subparsers, name, self.summary, self.example, is_nested=is_nested)
        if is_called:
            add_arguments(parser, self.arguments)
        parser.set_defaults(run=self._run)

    def _run(self, parsed: argparse.Namespace) -> int:
        return self.run(read_arguments(self.arguments, vars(parsed)))


@dataclass(frozen=True, kw_only=True)
class CommandFamily:
    """A command with commands of its own: the modules of its folder."""

    summary: str
    example: str

    def add_to(
        self, subparsers: Subparsers, name: str, folder: ModuleType, words: Sequence[str] | None
    ) -> None:
        """Add a parser for the family, and one for each member that the words may mean."""
        parser = _add_parser(subparsers, name, self.summary, self.example, is_nested=False)

        def run(_: argparse.Namespace) -> int:
            parser.print_help()
            return 2

        parser.set_defaults(run=run)
        if words is None or words[:1] == [name]:
            nested = parser.add_subparsers(title="commands", dest="subcommand", metavar="COMMAND")
            add_commands(nested, folder, words and words[1:], is_nested=True)


def add_commands(
    subparsers: Subparsers,
    folder: ModuleType,
    words: Sequence[str] | None,
    *,
    is_nested: bool = False,
) -> None:
    """Add the commands of a folder that the words may mean; all of them, if words is None.

    Importing one module instead of all of them is most of what makes a command start quickly.
    """
    if words and len(words) > 1 and words[0].startswith("-"):
        words = None  # a flag before the command, as in `rookery topics --json list`, hides it
    for name, module in find_commands(folder, words):
        command = module.COMMAND
        if isinstance(command, CommandFamily):
            command.add_to(subparsers, name, module, words)
        else:
            is_called = words is None or words[:1] == [name]
            command.add_to(subparsers, name, is_called=is_called, is_nested=is_nested)


def find_commands(
    folder: ModuleType, words: Sequence[str] | None
) -> Iterator[tuple[str, ModuleType]]:
    """Yield the command that the first word names, or all of a folder, with their modules.

    A name has dashes where a file has underscores.
    """
    modules = [info.name for info in pkgutil.iter_modules(folder.__path__)]
    by_name = {module.replace("_", "-"): module for module in modules}
    names = words[:1] if words and words[0] in by_name else by_name
    for name in names:
        yield name, import_module(f"{folder.__name__}.{by_name[name]}")


def print_json(value: object) -> None:
    """Print an answer for scripts."""
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def _add_parser(
    subparsers: Subparsers, name: str, summary: str, example: str, *, is_nested: bool
) -> argparse.ArgumentParser:
    """Add a parser whose help has an example, and which knows --json."""
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # The default of a nested command would undo a --json that came before its name.
    default = argparse.SUPPRESS if is_nested else False
    parser.add_argument(
        "--json", action="store_true", default=default, help="print the output as JSON"
    )
    return parser
