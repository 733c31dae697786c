"""Files, classes, functions, folders and ports stay small enough to read in one sitting."""

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


LIMITS = {
    "lines per file": 400,
    "lines per class": 250,
    "lines per function": 50,
    "files per folder": 20,
    "methods per port": 7,
}
JUSTIFIED = {
    "errors.py": "one row per error code of Kafka, with its meaning and its text",
    "errors.py:ErrorCode": "one row per error code of Kafka, with its meaning and its text",
    "records/twins/columnstwin.py": "a twin has the shape of its compiled module",
    "records/twins/kerneltwin.py": "a twin has the shape of its compiled module",
    "wire/_twin.py": "a twin has the shape of its compiled module",
}
"""What exceeds a limit, and why a division would not help its reader."""


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
    """Return the things that exceed the limit of their kind, largest first."""
    over = [size for size in found if size.kind == kind and size.amount > LIMITS[kind]]
    return sorted(over, key=lambda size: -size.amount)


@pytest.fixture(scope="module")
def measured() -> list[Size]:
    return sizes(SOURCE)


@pytest.mark.parametrize("kind", LIMITS)
def test_nothing_exceeds_its_limit(measured: list[Size], kind: str) -> None:
    over = [size for size in excess(measured, kind) if size.name not in JUSTIFIED]

    shown = "\n".join(f"{size.amount:5} {size.name}" for size in over)
    assert not over, f"{kind}, more than {LIMITS[kind]}; divide by responsibility:\n{shown}"


def test_every_justified_excess_exists(measured: list[Size]) -> None:
    over = {size.name for kind in LIMITS for size in excess(measured, kind)}

    assert not JUSTIFIED.keys() - over


def test_growth_beyond_the_ratchet_is_detected(tmp_path: Path) -> None:
    ports = "\n".join(f"    def method_{number}(self) -> None: ..." for number in range(8))
    (tmp_path / "large.py").write_text(
        f"class Port(Protocol[T]):\n{ports}\n\ndef work():\n" + "    pass\n" * 400
    )

    found = sizes(tmp_path)

    assert excess(found, "lines per file") == [Size("lines per file", "large.py", 411)]
    assert excess(found, "lines per function") == [Size("lines per function", "large.py:work", 401)]
    assert excess(found, "methods per port") == [Size("methods per port", "large.py:Port", 8)]
