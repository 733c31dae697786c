"""Each package says in its docstring what it owns and what others use of it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

import rookery

SOURCE = Path(rookery.__file__).parent
ROOT = Path(__file__).parents[2]
IMPORT: Final = re.compile(r"^\s*from rookery\.([\w.]+) import (\([^)]*\)|.*)", re.MULTILINE)
DEFINITION: Final = re.compile(
    r"^ *(?:async )?(?:class|def) (\w+)|^(\w+)(?:: [^=\n]+)? = ", re.MULTILINE
)
SINGLE_LINES: Final = ("spark/tuning/early", "cli/commands/")
"""A folder that Python alone imports, and folders of commands, which the table does not list."""


def packages(source: Path) -> dict[str, Path]:
    """Return the folders of all packages by their paths below the source."""
    return {
        path.parent.relative_to(source).as_posix(): path.parent
        for path in sorted(source.rglob("*/__init__.py"))
    }


def summary(package: Path) -> str:
    """Return the first paragraph of a package's docstring, without the period."""
    return " ".join(documentation(package).split("\n\n")[0].split()).removesuffix(".")


def documentation(package: Path) -> str:
    """Return the docstring of a package."""
    tree = ast.parse((package / "__init__.py").read_text("utf-8"))
    return ast.get_docstring(tree) or ""


def importers(source: Path) -> dict[str, set[str]]:
    """Find the folders that import from each package, its own parts left out."""
    known = packages(source)
    found: dict[str, set[str]] = defaultdict(set)
    for path in source.rglob("*.py"):
        folder = path.parent.relative_to(source).as_posix()
        for module, names in IMPORT.findall(path.read_text("utf-8")):
            for name in re.findall(r"\w+", names):
                package = f"{module}.{name}".replace(".", "/")
                while package and package not in known:
                    package = package.rpartition("/")[0]
                if package and not f"{folder}/".startswith(f"{package}/"):
                    found[package].add(folder)
    return found


def is_used_elsewhere(package: str, folders: set[str]) -> bool:
    """Whether code imports a package that is not in the folder above it either."""
    above = package.rpartition("/")[0]
    return any(not above or not f"{folder}/".startswith(f"{above}/") for folder in folders)


def names_its_surface(package: Path) -> bool:
    """Whether a docstring quotes something that is defined in the package."""
    quoted = set(re.findall(r"`(?:\w+\.)*(\w+)`", documentation(package)))
    text = "\n".join(path.read_text("utf-8") for path in package.rglob("*.py"))
    return any(not quoted.isdisjoint(names) for names in DEFINITION.findall(text))


def without_surface(source: Path) -> list[str]:
    """Find packages that others use and that neither declare nor describe what they offer."""
    known = packages(source)
    return sorted(
        name
        for name, folders in importers(source).items()
        if is_used_elsewhere(name, folders)
        and "__all__" not in (known[name] / "__init__.py").read_text("utf-8")
        and not names_its_surface(known[name])
    )


def test_every_package_names_what_others_use_of_it() -> None:
    assert not without_surface(SOURCE)


def test_rows_of_the_page_are_the_summaries_of_the_packages() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    rooms = page.partition("\n## Rooms\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+(?:/\w+)*)` \| (.*) \|$", rooms, re.MULTILINE))

    summaries = {
        name: summary(folder)
        for name, folder in packages(SOURCE).items()
        if not name.startswith(SINGLE_LINES)
    }

    assert rows == summaries


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ('"""Reads."""', True),
        ('"""Reads: `Writer`."""', True),
        ('"""Reads: `Reader`."""', False),
        ('"""Reads: `Reader.read`."""', False),
        ('"""Reads."""\n__all__ = ["Reader"]', False),
    ],
)
def test_package_without_a_surface_is_found(text: str, is_found: bool, tmp_path: Path) -> None:
    for path, code in {
        "a/__init__.py": text,
        "a/reader.py": "class Reader:\n    def read(self) -> None: ...\n",
        "a/inner/__init__.py": '"""Only `a` uses it."""',
        "a/user.py": "from rookery.a.inner import part\n",
        "b/__init__.py": '"""Uses `a`."""',
        "b/user.py": "from rookery.a.reader import (\n    Reader,\n)\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(code)

    assert without_surface(tmp_path) == ["a"] * is_found
