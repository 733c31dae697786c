"""Sizes of files, classes, functions, folders and ports may shrink but not grow.

`LIMITS` is a ratchet. `aim` is the size that nothing new may exceed. The other two columns record
what the code had when the row was last edited: how many things exceed the aim, and the size of the
largest. Whoever splits one of them lowers its row. Nobody raises one.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import rookery

SOURCE = Path(rookery.__file__).parent
PLUG_FOLDERS = (
    "broker/apis", "broker/groups/kinds", "cli/commands", "cluster/backends", "cluster/events",
    "decode/decoders", "security/mechanisms", "store/backends", "tables/formats", "wire/messages",
    "wire/kraft", "wire/coordinator", "wire/protocols", "testing",
)  # fmt: skip
"""Folders that grow by one file per API, backend or record; and the test kit."""


class Limit(NamedTuple):
    """A size that code should keep, and by how much it fails to."""

    aim: int
    over: int
    largest: int


LIMITS = {
    "lines per file": Limit(aim=400, over=10, largest=567),
    "lines per class": Limit(aim=250, over=12, largest=398),
    "lines per function": Limit(aim=50, over=4, largest=61),
    "files per folder": Limit(aim=20, over=0, largest=0),
    "methods per port": Limit(aim=7, over=2, largest=11),
}


class Size(NamedTuple):
    """How large one thing is."""

    kind: str
    name: str
    amount: int


def sizes(source: Path) -> list[Size]:
    """Measure every Python file below a folder."""
    paths = sorted(source.rglob("*.py"))
    folders = Counter(
        str(path.parent.relative_to(source)) for path in paths if path.name != "__init__.py"
    )
    in_folders = [
        Size("files per folder", folder, count)
        for folder, count in folders.items()
        if folder not in PLUG_FOLDERS
    ]
    return in_folders + [size for path in paths for size in file_sizes(path, source)]


def file_sizes(path: Path, source: Path) -> Iterator[Size]:
    """Measure a file and what it defines."""
    name, text = str(path.relative_to(source)), path.read_text("utf-8")
    yield Size("lines per file", name, text.count("\n"))
    for node in definitions(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Size("lines per function", f"{name}:{node.name}", lines(node))
        elif isinstance(node, ast.ClassDef):
            yield Size("lines per class", f"{name}:{node.name}", lines(node))
            if any(ast.unparse(base).startswith("Protocol") for base in node.bases):
                yield Size("methods per port", f"{name}:{node.name}", methods(node))


def definitions(node: ast.AST) -> Iterator[ast.stmt]:
    """Find classes and functions at any depth; expressions, which hold none, are not visited."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from definitions(child)
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield child


def lines(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a definition, decorators not included."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def methods(node: ast.ClassDef) -> int:
    """Count the methods of a class, properties not included."""
    return sum(
        isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
        and not any(ast.unparse(mark) == "property" for mark in item.decorator_list)
        for item in node.body
    )


def excess(found: list[Size], kind: str) -> list[Size]:
    """Return what exceeds the aim of its kind, largest first."""
    over = [size for size in found if size.kind == kind and size.amount > LIMITS[kind].aim]
    return sorted(over, key=lambda size: -size.amount)


@pytest.fixture(scope="module")
def measured() -> list[Size]:
    return sizes(SOURCE)


@pytest.mark.parametrize("kind", LIMITS)
def test_no_size_exceeds_the_ratchet(measured: list[Size], kind: str) -> None:
    over = excess(measured, kind)

    shown = "\n".join(f"{size.amount:5} {size.name}" for size in over)
    assert len(over) <= LIMITS[kind].over, f"more {kind} over {LIMITS[kind].aim}:\n{shown}"
    largest = over[0].amount if over else 0
    assert largest <= LIMITS[kind].largest, f"{kind}:\n{shown}"


def test_growth_beyond_the_ratchet_is_detected(tmp_path: Path) -> None:
    ports = "\n".join(f"    def method_{number}(self) -> None: ..." for number in range(8))
    (tmp_path / "large.py").write_text(
        f"class Port(Protocol[T]):\n{ports}\n\ndef work():\n" + "    pass\n" * 400
    )

    found = sizes(tmp_path)

    assert excess(found, "lines per file") == [Size("lines per file", "large.py", 411)]
    assert excess(found, "lines per function") == [Size("lines per function", "large.py:work", 401)]
    assert excess(found, "methods per port") == [Size("methods per port", "large.py:Port", 8)]
