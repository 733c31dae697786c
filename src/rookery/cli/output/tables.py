"""Readable tables: no lines, bold titles, full names, and numbers aligned to the right."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

WIDE: Final = 10_000
"""The width if the output is not a terminal: programs read whole lines."""


def open_console(*, is_quiet: bool = False, highlight: bool = True) -> Console:
    """Return a console for standard output; in a pipe or a file, lines are not wrapped."""
    width = None if sys.stdout.isatty() else WIDE
    return Console(width=width, quiet=is_quiet, highlight=highlight)


def make_table(titles: Sequence[str], *, right: Collection[str] = ()) -> Table:
    """Return an empty table; the columns with a title in `right` are aligned to the right."""
    table = Table(box=None, header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold", justify="right" if title in right else "left")
    return table


def number_text(number: int | None, missing: str) -> str:
    """Format a number for readers."""
    return missing if number is None else f"{number:,}"
