"""Tables for people: no lines, bold titles, names in full and numbers to the right."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.table import Table


def make_table(titles: Sequence[str], *, right: Collection[str] = ()) -> Table:
    """Return an empty table; the columns with a title in `right` stand to the right."""
    table = Table(box=None, header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold", justify="right" if title in right else "left")
    return table


def number_text(number: int | None, missing: str) -> str:
    """Write a number for people."""
    return missing if number is None else f"{number:,}"
