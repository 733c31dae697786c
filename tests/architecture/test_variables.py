"""Variables say what they hold: none in `src` is called `found`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rookery

SOURCE = Path(rookery.__file__).parent


def bindings(source: str, name: str) -> Iterator[int]:
    """Find the lines that bind a variable of a name: targets, parameters and captures."""
    # Parsing takes most of the time: a module without the word need not be parsed.
    if not re.search(rf"\b{name}\b", source):
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=bound, ctx=ast.Store()):
                pass
            case ast.arg(arg=bound) | ast.MatchAs(name=bound) | ast.MatchStar(name=bound):
                pass
            case ast.ExceptHandler(name=bound) | ast.MatchMapping(rest=bound):
                pass
            case _:
                continue
        if bound == name:
            yield node.lineno


def bindings_in(folder: Path, name: str) -> Iterator[str]:
    """Find the lines of a folder's modules that bind a variable of a name."""
    for path in sorted(folder.rglob("*.py")):
        for line in bindings(path.read_text("utf-8"), name):
            yield f"{path}:{line}"


def test_no_variable_is_called_found() -> None:
    assert not list(bindings_in(SOURCE, "found"))


@pytest.mark.parametrize(
    "statement",
    [
        "found = 1",
        "for found in rows: pass",
        "[row for _, found in rows]",
        "def work(*found): pass",
        "lambda found: 1",
        "with rows as found: pass",
        "if (found := rows): pass",
        "match rows:\n    case [first, *found]: pass",
        "match rows:\n    case int() as found: pass",
        "match rows:\n    case {1: 2, **found}: pass",
        "try: pass\nexcept OSError as found: pass",
    ],
)
def test_binding_is_detected(statement: str) -> None:
    assert len(list(bindings(statement, "found"))) == 1


@pytest.mark.parametrize("statement", ["print(found)", "row.found = 1", "work(found=1)"])
def test_use_is_not_a_binding(statement: str) -> None:
    assert list(bindings(statement, "found")) == []
