"""Piped tables have whole lines, regardless of the terminal's width."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import rookery.cli
from tests.cli.running import Rookery

LONG = "long-" + "n" * 240
GROUP = "[red]" + "g" * 200
FOLDER = Path(next(iter(rookery.cli.__path__)))


@pytest.fixture(scope="module")
def topic(rookery: Rookery) -> str:
    rookery("topics", "create", LONG, "-p", "2")
    rookery("groups", "reset", GROUP, "--topic", LONG, "--to-earliest", "--execute")
    return LONG


@pytest.mark.parametrize(
    ("command", "first"),
    [
        (("topics", "list"), LONG),
        (("groups", "list"), GROUP),
        (("groups", "describe", GROUP), LONG),
        (("groups", "reset", GROUP, "--topic", LONG, "--to-latest"), LONG),
    ],
)
def test_a_row_is_one_line(
    rookery: Rookery,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    first: str,
) -> None:
    assert topic
    monkeypatch.setenv("COLUMNS", "40")
    lines = rookery(*command).decode().splitlines()

    names = [line.split()[0] for line in lines if line.strip()]
    assert first in names
    assert not [name for name in names if name != first and name in first]


def test_only_tables_opens_a_console_on_standard_output() -> None:
    consoles = []
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Console":
                names = {keyword.arg for keyword in node.keywords}
                if not names & {"stderr", "width", "file"}:
                    consoles.append(f"{path}:{node.lineno}")
    assert consoles == []
