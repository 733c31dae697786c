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
PARTICIPLE: Final = re.compile(
    r"_?(?:[a-z]+(?:ed|ing)|(?:re|un|up)?(?:begun|broken|built|chosen|done|found|given|gone|held|kept"
    r"|known|left|lost|made|met|put|read|said|seen|sent|swept|taken|told|written))",
    re.IGNORECASE,
)
NOUNS: Final = frozenset(
    {"Backing", "Feed", "Finding", "Gone", "Setting", "Speed", "Tuning", "_Read", "_Sighting"}
)
"""Nouns that look like a participle, and the error `Gone`. At most ten."""
NOUN_MODULES: Final = frozenset(
    {
        "arrowunchecked", "backing", "feed", "read", "reading", "seaweed", "testing", "tuning",
        "writing",
    }
)  # fmt: skip
"""Modules and packages whose names look like a participle or a gerund. At most ten.

The packages `read` are next to packages `write`.

`records/_columns.pyx` imports `reading` and `writing` by name; users choose the tuning
`arrow-unchecked` by the name of its module.
"""

VAGUE: Final = re.compile(
    r"^ *(?:async )?for (?:one|found)\b|^ *(?:one|found)(?:, \w+)*(?:: [^=]+)? = "
)
"""A loop variable or a local variable with a name that stands for anything."""


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
    for public_class in classes:
        paths[public_class.name].append(public_class.path)

    shared = {name: where for name, where in paths.items() if len(where) > 1}

    assert set(shared) <= SHARED, shared
    assert len(SHARED) <= 10


def bare_participles(source: Path) -> Iterator[PublicClass]:
    """Find classes, also private ones, that are named by one word that is not a noun."""
    for path in sorted(source.rglob("*.py")):
        where = path.relative_to(source).as_posix()
        names = re.findall(r"^ *class (\w+)", path.read_text("utf-8"), re.MULTILINE)
        for name in names:
            # A second capital begins a second word: the name is then a noun with an adjective.
            if re.fullmatch(r"_?[A-Z][a-z0-9]+", name) and PARTICIPLE.fullmatch(name):
                yield PublicClass(name, where)


def test_a_class_is_not_a_bare_participle() -> None:
    participles = [
        participle for participle in bare_participles(SOURCE) if participle.name not in NOUNS
    ]

    assert not participles
    assert len(NOUNS) <= 10


@pytest.mark.parametrize("name", ["Parked", "_Waiting", "Rebuilt", "_Told", "Upkept"])
def test_bare_participle_is_detected(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"class {name}: ...\nclass {name}Batch: ...\n")

    assert [participle.name for participle in bare_participles(tmp_path)] == [name]


def participle_modules(source: Path) -> Iterator[str]:
    """Find modules and packages, also private and compiled ones, that are not nouns."""
    for path in sorted(source.rglob("*.py*")):
        name = path.parent.name if path.name == "__init__.py" else path.stem
        if path.suffix in {".py", ".pyx"} and PARTICIPLE.fullmatch(name):
            yield name


def test_a_module_is_not_a_participle_or_gerund() -> None:
    assert set(participle_modules(SOURCE)) == NOUN_MODULES
    assert len(NOUN_MODULES) <= 10


@pytest.mark.parametrize("name", ["opening", "_opened", "kept", "rebuilt", "known"])
def test_participle_module_is_detected(name: str, tmp_path: Path) -> None:
    for stem in (name, f"{name}files", "reader", f"{name}/__init__"):
        (tmp_path / f"{stem}.py").parent.mkdir(exist_ok=True)
        (tmp_path / f"{stem}.py").touch()

    assert list(participle_modules(tmp_path)) == [name, name]


def renamed_imports(source: Path) -> Iterator[str]:
    """Find imports of our own code under another name; `as _name` chooses a compiled module."""
    for path in sorted(source.rglob("*.py")):
        text = path.read_text("utf-8")
        # Parsing takes most of the time: most files rename nothing.
        if not re.search(r"^\s*(?:from rookery.*|import rookery.*|\w+) as \w+", text, re.MULTILINE):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rookery"):
                for name in node.names:
                    if name.asname and name.asname != name.name and name.asname[0] != "_":
                        yield f"{path}:{node.lineno}: {name.name} as {name.asname}"
            elif isinstance(node, ast.Import):
                for name in node.names:
                    if name.asname and name.name.startswith("rookery"):
                        yield f"{path}:{node.lineno}: {name.name} as {name.asname}"


def test_no_import_is_renamed_to_avoid_a_clash() -> None:
    assert not list(renamed_imports(SOURCE))


def test_renamed_import_is_detected(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(
        "from rookery.records import batches as b\nimport rookery.records.scan as s\n"
    )

    assert [renamed.split(": ")[1] for renamed in renamed_imports(tmp_path)] == [
        "batches as b",
        "rookery.records.scan as s",
    ]


def vague_variables(source: Path) -> Iterator[str]:
    """Find variables whose name does not say what they hold."""
    for path in sorted(source.rglob("*.py")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
            if VAGUE.search(line):
                yield f"{path}:{number}: {line.strip()}"


def test_a_variable_says_what_it_holds() -> None:
    assert not list(vague_variables(SOURCE))


@pytest.mark.parametrize(
    "line", ["for one in rows:", "one, other = pair", "found = search()", "found: int = 1"]
)
def test_vague_variable_is_detected(line: str, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(f"{line}\nis_found = one == found  # found = one\n")

    assert [text.split(": ", 1)[1] for text in vague_variables(tmp_path)] == [line]


def test_second_class_of_the_same_name_is_detected(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text("class Batch: ...\nclass _Private: ...\n")

    assert [public_class.path for public_class in public_classes(tmp_path)] == ["one.py", "two.py"]
