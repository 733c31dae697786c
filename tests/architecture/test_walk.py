"""The table of the files on a record's way names files that exist, each once, and counts them."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

from rookery.testing.walk import path_of, read_table

PAGE = Path(__file__).parents[2] / "docs" / "designs" / "0012-the-walk-of-a-record.md"


def test_table_of_the_walk_is_current() -> None:
    phases = read_table(PAGE)

    files = [file for phase in phases for file in phase.files]
    assert files
    assert not [file for file in files if not path_of(file).is_file()]
    assert len(set(files)) == len(files)
    assert [phase.sum for phase in phases] == list(accumulate(len(phase.files) for phase in phases))
