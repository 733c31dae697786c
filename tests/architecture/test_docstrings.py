"""Docstrings name errors, classes and files that exist; each module of tests says what it tests."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

import rookery

SOURCE = Path(rookery.__file__).parent
ROOT = Path(__file__).parents[2]
DOCSTRING: Final = re.compile(r'"""(.*?)"""', re.DOTALL)
CLASS: Final = re.compile(r"^\s*(?:cdef )?class (\w+)", re.MULTILINE)
RAISES: Final = re.compile(r"^( *)Raises:\n((?:\1 +\S.*\n?|\s*\n)+)", re.MULTILINE)
ENTRY: Final = re.compile(r"((?:[A-Z]\w*)(?:(?:, | or )[A-Z]\w*)*):")
FILE: Final = re.compile(r"(?<!`)`([\w/]+\.pyx?)`(?!`)")
QUOTED: Final = re.compile(r"(?<!`)`([A-Z][a-z]\w*(?:\.\w+)*)(?:\(\))?`(?!`)")
FOREIGN: Final = frozenset(
    {
        "CancelledError", "MetricsData", "PySparkException", "Rate", "X500Principal.getName",
        "XKey", "XValue",
    }
)  # fmt: skip
"""Names of other programs, and placeholders. At most ten."""


def classes(texts: list[str]) -> set[str]:
    """Find the classes that can be raised."""
    return {name for text in texts for name in CLASS.findall(text)} | set(dir(builtins))


def unknown_errors(text: str, known: set[str]) -> Iterator[str]:
    """Find names under `Raises:` in the docstrings of a module that are not classes."""
    for docstring in DOCSTRING.findall(text):
        for indent, section in RAISES.findall(docstring):
            for line in section.splitlines():
                entry = ENTRY.match(line.removeprefix(indent + "    "))
                if entry is not None:
                    yield from (name for name in re.split(", | or ", entry[1]) if name not in known)


def words_of_code(texts: list[str]) -> set[str]:
    """Return all words outside docstrings and comments."""
    return {
        word
        for text in texts
        for word in re.findall(r"\w+", re.sub(r"#[^\n]*", "", DOCSTRING.sub("", text)))
    }


def unknown_names(text: str, words: set[str]) -> Iterator[str]:
    """Find names between backticks that begin like a class and that no code has."""
    for docstring in DOCSTRING.findall(text):
        for name in QUOTED.findall(docstring):
            if not words.issuperset(name.split(".")):
                yield name


@pytest.fixture(scope="module")
def modules() -> dict[str, str]:
    return {
        path.relative_to(SOURCE).as_posix(): path.read_text("utf-8")
        for path in sorted(SOURCE.rglob("*.py*"))
        if path.suffix in {".py", ".pyx", ".pyi"}
    }


def test_every_error_that_a_docstring_names_exists(modules: dict[str, str]) -> None:
    known = classes(list(modules.values())) | FOREIGN

    stale = {name: sorted(unknown_errors(text, known)) for name, text in modules.items()}

    assert not {name: errors for name, errors in stale.items() if errors}


def test_every_class_that_a_docstring_quotes_exists(modules: dict[str, str]) -> None:
    words = words_of_code(list(modules.values()))

    stale = {
        name: sorted(set(unknown_names(text, words)) - FOREIGN) for name, text in modules.items()
    }

    assert not {name: names for name, names in stale.items() if names}
    assert len(FOREIGN) <= 10


def unknown_files(text: str, files: set[str]) -> Iterator[str]:
    """Find paths between backticks that are the end of no file's path."""
    for docstring in DOCSTRING.findall(text):
        for path in FILE.findall(docstring):
            if path not in files:
                yield path


def ends_of(paths: Iterable[str]) -> set[str]:
    """Return every path, also without the first folders."""
    return {path.split("/", start)[-1] for path in paths for start in range(path.count("/") + 1)}


def test_every_file_that_a_docstring_names_exists(modules: dict[str, str]) -> None:
    files = ends_of(
        path.relative_to(ROOT).as_posix()
        for folder in ("src", "tests")
        for path in (ROOT / folder).rglob("*.py*")
    )

    stale = {name: sorted(unknown_files(text, files)) for name, text in modules.items()}

    assert not {name: paths for name, paths in stale.items() if paths}


def test_every_module_of_tests_says_what_it_tests() -> None:
    paths = [path for path in (ROOT / "tests").rglob("*.py") if path.stat().st_size]

    assert not [path for path in paths if not path.read_text("utf-8").startswith(('"""', "#!"))]


PLANTED = '''
class Known(Exception): ...

def read():
    """Read it, as `Former.read` and `Known` do, and as in `reader.py` or `log/former.py`.

    Raises:
        Known: it is known.
        Known, Missing: as
            Others: do.
        Wrong or ValueError: no.
    """
'''


def test_stale_names_are_detected() -> None:
    assert list(unknown_errors(PLANTED, classes([PLANTED]))) == ["Missing", "Wrong"]
    assert list(unknown_names(PLANTED, words_of_code([PLANTED]))) == ["Former.read"]
    assert list(unknown_files(PLANTED, ends_of(["src/log/reader.py"]))) == ["log/former.py"]
