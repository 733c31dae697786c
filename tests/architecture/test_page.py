"""ARCHITECTURE.md names files and functions that exist, every package, and the layers."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import rookery

SOURCE = Path(rookery.__file__).parent
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
COMMANDS = "cli/commands/"
"""Folders of commands with subcommands; the page names the folder above them."""
MAX_ENTRY = 200
"""The most characters of an entry of the changelog."""


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def module(name: str) -> bool:
    return (SOURCE / f"{name}.py").is_file()


def missing_names(step: str) -> Iterator[str]:
    """Find the functions of a step that none of its files defines."""
    paths = re.findall(r"`([\w/]+\.py)`", step)
    texts = [(SOURCE / path).read_text("utf-8") for path in paths]
    for name in re.findall(r"`([A-Za-z_]\w*(?:\.\w+)?)`", step):
        parts = name.split(".")
        if not any(
            all(re.search(rf"\b(?:class|def) {part}\b", text) for part in parts) for text in texts
        ):
            yield name


def test_every_file_that_the_page_names_exists() -> None:
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir()}
    named = {
        name
        for name in re.findall(r"(?<![\w/])(\w+(?:/\w+)+\.py)\b", PAGE)
        if name.split("/")[0] in packages
    }

    assert len(named) > 50
    assert not sorted(name for name in named if not (SOURCE / name).is_file())


def test_a_term_of_the_glossary_has_one_meaning() -> None:
    terms = re.findall(r"^\| ([a-z][^|*]*?)\*? \|", section("Glossary"), re.MULTILINE)[1:]

    assert len(terms) > 50
    assert not [term for term in terms if "(" in term]
    assert terms == sorted(set(terms))


def test_few_words_are_coined() -> None:
    coined = re.findall(r"^\| ([a-z][^|*]*)\* \|", section("Glossary"), re.MULTILINE)

    assert len(coined) <= 5


def test_an_entry_of_the_changelog_is_one_line() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines()

    assert not [line for line in lines if line and not line.startswith(("#", "- "))]
    assert not [line for line in lines if len(line) > MAX_ENTRY]


def test_every_package_has_a_row() -> None:
    packages = {
        path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*/__init__.py")
    }
    rows = set(re.findall(r"^\| `([\w/]+)` \|", PAGE, re.MULTILINE))

    missing = packages - rows - {"spark/tuning/early"}
    assert not {name for name in missing if not name.startswith(COMMANDS)}


def test_every_row_of_a_package_is_a_package() -> None:
    rows = set(re.findall(r"^\| `(\w+(?:/\w+)*)` \|", section("Rooms"), re.MULTILINE))

    assert not sorted(row for row in rows if not (SOURCE / row / "__init__.py").is_file())


def test_layers_of_the_page_are_those_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    layers = contracts["contracts"][0]["layers"]
    # A module in parentheses may be absent, as long as it has not been written.
    expected = [
        [name for name in re.findall(r"\w+", layer) if (SOURCE / name).is_dir() or module(name)]
        for layer in layers
    ]

    drawn = PAGE.partition("```\n")[2].partition("```")[0]

    lines = [re.split(r" {2,}", line.strip())[0] for line in drawn.splitlines()]
    assert [re.findall(r"\w+", line) for line in lines] == [names for names in expected if names]


def test_functions_of_the_reading_order_are_in_its_files() -> None:
    steps = re.findall(r"^\d+\. (.*)$", section("Reading order"), re.MULTILINE)

    assert len(steps) > 10
    assert not [name for step in steps for name in missing_names(step)]


def test_designs_are_numbered_without_a_gap() -> None:
    names = sorted(path.name for path in (ROOT / "docs" / "designs").glob("*.md"))

    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
