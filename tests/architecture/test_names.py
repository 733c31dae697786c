"""Names follow the glossary: one class per name, nouns for classes, verbs for functions."""

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
VERBS: Final = frozenset(
    {"embed", "exceed", "feed", "need", "proceed", "put", "read", "ring", "succeed"}
)
"""Verbs that look like a participle."""
NOT_VERBS: Final = {
    "beginning": "a noun",
    "committed": "Kafka's name for the offsets that a group has committed",
    "created": "one of the rows that `service/access/accesstable.py` reads as a table",
    "ended": "public in the test kit",
    "listed": "as `created`",
    "named": "as `created`",
    "repeated": "declares a field, as `option` and `switch` do",
    "setting": "a type of arguments, as `count` and `size` are",
    "speed": "a noun",
}
"""Functions that are not verbs, with the reason. At most ten; remove one when it is renamed."""

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


def is_participle(name: str) -> bool:
    """Return whether the name of a function is one word that is not a verb."""
    return (
        name.isalpha()
        and name.islower()
        and name not in VERBS
        and PARTICIPLE.fullmatch(name) is not None
    )


def functions(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names of functions and methods, without properties and nested functions."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from functions(node.body)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = [ast.unparse(mark) for mark in node.decorator_list]
            if not any(mark.endswith(("property", ".setter")) for mark in marks):
                yield node.name


def participle_functions(source: Path) -> Iterator[PublicClass]:
    """Find public functions and methods that are named by a bare participle or gerund."""
    for path in sorted(source.rglob("*.py")):
        where = path.relative_to(source).as_posix()
        text = path.read_text("utf-8")
        # Parsing takes most of the time: most files have no such name.
        if where.startswith(NAMED_ELSEWHERE) or not any(
            map(is_participle, re.findall(r"\bdef ([a-z]+)\b", text))
        ):
            continue
        for name in functions(ast.parse(text).body):
            if is_participle(name):
                yield PublicClass(name, where)


def test_a_public_function_is_a_verb() -> None:
    participles = list(participle_functions(SOURCE))

    assert not [function for function in participles if function.name not in NOT_VERBS]
    assert {function.name for function in participles} == NOT_VERBS.keys()
    assert len(NOT_VERBS) <= 10


@pytest.mark.parametrize("name", ["parked", "waiting", "rebuilt", "told"])
def test_participle_function_is_detected(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        f"class Reader:\n    async def {name}(self): ...\n"
        f"    @property\n    def sent(self): ...\n"
        f"def read():\n    def held(): ...\ndef _{name}(): ...\ndef {name}_rows(): ...\n"
    )

    assert [function.name for function in participle_functions(tmp_path)] == [name]


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
