"""Every command has a typed class of arguments, and is light to import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

import rookery.cli
from rookery.cli import commands
from rookery.cli.command import Command, CommandArguments, CommandFamily, find_commands

FOLDER = Path(next(iter(rookery.cli.__path__)))


def _walk(folder: ModuleType, prefix: str = "") -> Iterator[tuple[str, ModuleType]]:
    for name, module in find_commands(folder, None):
        yield f"{prefix}{name}", module
        if isinstance(module.COMMAND, CommandFamily):
            yield from _walk(module, f"{prefix}{name} ")


MODULES = dict(_walk(commands))


def test_commands_are_found_by_their_files() -> None:
    assert {"broker", "topics list", "job import", "pipeline replay-dead-letters"} <= MODULES.keys()


@pytest.mark.parametrize("name", MODULES)
def test_a_command_has_frozen_arguments(name: str) -> None:
    command = MODULES[name].COMMAND
    if isinstance(command, CommandFamily):
        return
    assert isinstance(command, Command)
    assert issubclass(command.arguments, CommandArguments)
    # A frozen dataclass refuses assignments by a method of its own.
    assert "__setattr__" in vars(command.arguments)
    assert "json" in {field.name for field in fields(command.arguments)}


def test_no_command_sees_a_namespace() -> None:
    seen = [
        str(path.relative_to(FOLDER))
        for path in FOLDER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "Namespace"
    ]
    assert set(seen) == {"command.py", "main.py"}
