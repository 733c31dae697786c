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
_PARTS = "made of ports of at most seven methods: a backend has all, a caller asks for one part"
JUSTIFIED = {
    "cluster/port.py:ClusterLog": _PARTS,
    "consumer/fetch/source.py:RowSource": _PARTS,
    "store/port.py:Store": _PARTS,
    "tables/port.py:Table": _PARTS,
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
    trees = {path: ast.parse(path.read_text("utf-8")) for path in paths}
    ports = [
        (path, node)
        for path, tree in trees.items()
        for node in definitions(tree)
        if isinstance(node, ast.ClassDef) and "Protocol" in bases(node)
    ]
    known = {node.name: node for _, node in ports}
    of_ports = [
        Size(
            "methods per port",
            f"{path.relative_to(source)}:{node.name}",
            len(methods(node, known)),
        )
        for path, node in ports
    ]
    of_files = [size for path, tree in trees.items() for size in file_sizes(path, tree, source)]
    return in_folders + of_ports + of_files


def file_sizes(path: Path, tree: ast.Module, source: Path) -> Iterator[Size]:
    """Measure a file and what it defines."""
    name = str(path.relative_to(source))
    yield Size("lines per file", name, path.read_text("utf-8").count("\n"))
    for node in definitions(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Size("lines per function", f"{name}:{node.name}", lines(node))
        elif isinstance(node, ast.ClassDef):
            yield Size("lines per class", f"{name}:{node.name}", lines(node))


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


def bases(node: ast.ClassDef) -> list[str]:
    """Return the names of the classes that a class derives from."""
    return [ast.unparse(base).partition("[")[0] for base in node.bases]


def methods(node: ast.ClassDef, known: dict[str, ast.ClassDef]) -> set[str]:
    """Return the methods of a port and of the ports that it consists of, without properties."""
    own = {
        item.name
        for item in node.body
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
        and not any(ast.unparse(mark) == "property" for mark in item.decorator_list)
    }
    parts = (methods(known[name], known) for name in bases(node) if name in known)
    return own.union(*parts)


def excess(candidates: list[Size], kind: str) -> list[Size]:
    """Return the things that exceed the limit of their kind, largest first."""
    over = [size for size in candidates if size.kind == kind and size.amount > LIMITS[kind]]
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
        f"class Port(Protocol[T]):\n{ports}\n\nclass Whole(Port, Protocol):\n"
        "    def more(self) -> None: ...\n\ndef work():\n" + "    pass\n" * 400
    )

    planted = sizes(tmp_path)

    assert excess(planted, "lines per file") == [Size("lines per file", "large.py", 414)]
    assert excess(planted, "lines per function") == [
        Size("lines per function", "large.py:work", 401)
    ]
    assert excess(planted, "methods per port") == [
        Size("methods per port", "large.py:Whole", 9),
        Size("methods per port", "large.py:Port", 8),
    ]
