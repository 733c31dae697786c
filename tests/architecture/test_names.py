"""Public names follow the glossary of ARCHITECTURE.md: one class per name, and names are nouns."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import rookery

SOURCE = Path(rookery.__file__).parent
NAMED_ELSEWHERE: Final = ("wire/messages/", "wire/kraft/", "wire/coordinator/", "records/twins/")
"""Messages and records keep Kafka's names; twins keep the names of the compiled modules."""
SHARED: Final[frozenset[str]] = frozenset()
"""Class names that may stand for several classes. At most ten."""
NOUNS: Final = frozenset({"Backing", "Feed", "Finding", "Setting", "Speed", "Tuning"})
"""Nouns that end like a participle. At most ten."""
NOUN_MODULES: Final = frozenset({"backing", "reading", "writing"})
"""Modules whose names end like a gerund. `records/_columns.pyx` imports the last two by name."""


class PublicClass(NamedTuple):
    """A class that other modules may import."""

    name: str
    path: str


def public_classes(source: Path) -> Iterator[PublicClass]:
    """Find the public classes of public modules."""
    for path in sorted(source.rglob("*.py")):
        where = path.relative_to(source).as_posix()
        if where.startswith(NAMED_ELSEWHERE) or path.name.startswith("_"):
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield PublicClass(node.name, where)


@pytest.fixture(scope="module")
def classes() -> list[PublicClass]:
    return list(public_classes(SOURCE))


def test_class_names_are_unique(classes: list[PublicClass]) -> None:
    paths = defaultdict(list)
    for one in classes:
        paths[one.name].append(one.path)

    shared = {name: where for name, where in paths.items() if len(where) > 1}

    assert set(shared) <= SHARED, shared
    assert len(SHARED) <= 10


def test_a_class_is_not_a_bare_participle(classes: list[PublicClass]) -> None:
    participles = [one for one in classes if re.fullmatch(r"[A-Z][a-z]+(ed|ing)", one.name)]

    assert not [one for one in participles if one.name not in NOUNS], participles
    assert len(NOUNS) <= 10


def test_a_module_is_not_a_gerund() -> None:
    gerunds = [path for path in SOURCE.rglob("*ing.py") if path.stem not in NOUN_MODULES]

    assert not gerunds
    assert len(NOUN_MODULES) <= 10


def renamed_imports(source: Path) -> Iterator[str]:
    """Find imports of our own code under another name; `as _name` chooses a compiled module."""
    for path in sorted(source.rglob("*.py")):
        text = path.read_text("utf-8")
        # Parsing takes most of the time: most files rename nothing.
        if not re.search(r"^\s*(from rookery.*|\w+) as \w+", text, re.MULTILINE):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rookery"):
                for name in node.names:
                    if name.asname and name.asname != name.name and name.asname[0] != "_":
                        yield f"{path}:{node.lineno}: {name.name} as {name.asname}"


def test_no_import_is_renamed_to_avoid_a_clash() -> None:
    assert not list(renamed_imports(SOURCE))


def test_renamed_import_is_detected(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text("from rookery.records import batches as b\n")

    assert [found.split(": ")[1] for found in renamed_imports(tmp_path)] == ["batches as b"]


def test_second_class_of_the_same_name_is_detected(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text("class Batch: ...\nclass _Private: ...\n")

    assert [one.path for one in public_classes(tmp_path)] == ["one.py", "two.py"]
