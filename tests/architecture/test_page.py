"""ARCHITECTURE.md names files that exist, and every package."""

from __future__ import annotations

import re
from pathlib import Path

import rookery

SOURCE = Path(rookery.__file__).parent
PAGE = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text("utf-8")
COMMANDS = "cli/commands/"
"""Folders of commands with subcommands; the page names the folder above them."""


def test_every_file_that_the_page_names_exists() -> None:
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir()}
    named = {
        name
        for name in re.findall(r"(?<![\w/])(\w+(?:/\w+)+\.py)\b", PAGE)
        if name.split("/")[0] in packages
    }

    assert len(named) > 50
    assert not sorted(name for name in named if not (SOURCE / name).is_file())


def test_every_package_has_a_row() -> None:
    packages = {
        path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*/__init__.py")
    }
    rows = set(re.findall(r"^\| `([\w/]+)` \|", PAGE, re.MULTILINE))

    missing = packages - rows - {"spark/tuning/early"}
    assert not {name for name in missing if not name.startswith(COMMANDS)}
