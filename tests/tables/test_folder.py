"""Files below a location, for code that does not await, on any thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.store.port import NotFound
from rookery.tables.folder import TableFolder
from rookery.tables.open import open_table
from rookery.tables.port import TableSpec


async def test_table_folder_works_inside_a_running_event_loop(tmp_path: Path) -> None:
    folder = TableFolder(str(tmp_path))
    folder.create("data/one", b"1")

    assert folder.read_all(["data/one"]) == [b"1"]
    with pytest.raises(NotFound):
        folder.read("data/two")
    assert list(open_table(TableSpec("parquet", str(tmp_path / "table"))).read()) == []
