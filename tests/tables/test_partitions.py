"""Iceberg tables that other engines change: partition fields, and rows marked as deleted."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table as IcebergHandle
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    TruncateTransform,
)

from rookery.clock import SystemClock, Time
from rookery.tables import filerewrite
from rookery.tables.open import open_table
from rookery.tables.port import BatchName, TableSpec, UpkeepPolicy, Upsert
from tests.tables.independent import rows_of
from tests.tables.positiondeletes import mark_deleted

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("seen", pa.timestamp("us", tz="UTC")),
        pa.field("at", pa.struct([pa.field("place", pa.string())])),
        pa.field(
            "rings", pa.list_(pa.field("element", pa.struct([pa.field("code", pa.string())])))
        ),
    ]
)
START = datetime(2026, 11, 1, tzinfo=UTC)
LATER = Time(SystemClock().now_ms() + 3600 * 1000)


def rows(ids: Sequence[int]) -> pa.RecordBatch:
    """Return rows of several days and places, some of them without one."""
    values = [
        {
            "id": number,
            "seen": None if number % 7 == 6 else START + timedelta(hours=5 * number),
            "at": {"place": ("nest", "field", None)[number % 3]},
            "rings": (None, [], [{"code": f"ring {number}"}])[number % 3],
        }
        for number in ids
    ]
    return pa.RecordBatch.from_pylist(values, SCHEMA)


class Birds:
    """A table that is written by us and changed by others."""

    def __init__(self, folder: Path) -> None:
        self.spec = TableSpec("iceberg", str(folder / "birds"), "birds")
        self.table = open_table(self.spec)
        self._uri = f"sqlite:///{folder / 'catalog.db'}"
        self._batch = 0
        self.ran = 0

    def add(self, ids: Sequence[int], upsert: Upsert | None = None) -> None:
        name = BatchName("birds", "a1", self._batch)
        files = self.table.stage(name, [rows(ids)], SCHEMA, "t")
        assert self.table.commit(name, files, SCHEMA, upsert, self._run)
        self._batch += 1

    def replace(self, ids: Sequence[int]) -> None:
        name = BatchName("birds", "a1", self._batch)
        files = self.table.stage(name, [rows(ids)], SCHEMA, "t")
        assert self.table.replace(name, files, SCHEMA, self._run)
        self._batch += 1

    def _run(self, tasks: Sequence[Any]) -> list[Any]:
        self.ran += len(tasks)
        return [pickle.loads(pickle.dumps(task))() for task in tasks]

    def handle(self) -> IcebergHandle:
        return load_catalog("rookery", type="sql", uri=self._uri).load_table("default.birds")

    def change_spec(self) -> UpdateSpec:
        return self.handle().update_spec()

    def ids(self) -> list[int]:
        """Return the ids as others find them; each file must be of one partition."""
        for task in self.handle().scan().plan_files():
            if task.file.spec_id == self.handle().spec().spec_id:
                assert len(task.file.partition) == len(self.handle().spec().fields)
        theirs: list[Any] = [row[0] for row in rows_of(self.spec)]
        mine: list[Any] = [row["id"] for part in self.table.read() for row in part.to_pylist()]
        assert sorted(mine) == theirs
        return theirs

    def rows(self) -> list[Any]:
        """Return all rows as we find them, in the order of their ids."""
        read = [row for part in self.table.read() for row in part.to_pylist()]
        return sorted(read, key=lambda row: row["id"])


@pytest.fixture
def birds(tmp_path: Path) -> Birds:
    birds = Birds(tmp_path)
    birds.add(range(10))
    return birds


def test_files_follow_the_current_partition_spec(birds: Birds) -> None:
    with birds.change_spec() as update:
        update.add_field("seen", DayTransform(), "day")
    birds.add(range(10, 30))
    assert birds.ids() == list(range(30))
    assert birds.ran == 1

    handle = birds.handle()
    days = {task.file.partition[0] for task in handle.scan("id >= 10").plan_files()}
    assert None in days
    assert len(days) == 6
    # A query that prunes partitions finds the same rows.
    noon = "seen >= '2026-11-04T00:00:00+00:00' and seen < '2026-11-05T00:00:00+00:00'"
    numbers: list[Any] = handle.scan(noon).to_arrow()["id"].to_pylist()
    assert sorted(numbers) == [15, 16, 17, 18, 19]
    with birds.change_spec() as update:
        update.remove_field("day")
        update.add_field("id", BucketTransform(4), "bucket")
        update.add_field("at.place", IdentityTransform(), "place")
        update.add_field("at.place", TruncateTransform(2), "start")
        update.add_field("seen", HourTransform(), "hour")
    birds.add(range(30, 60))
    assert birds.ids() == list(range(60))
    assert birds.handle().scan("id = 42").to_arrow()["id"].to_pylist() == [42]
    with birds.change_spec() as update:
        for name in ("bucket", "place", "start", "hour"):
            update.remove_field(name)
    birds.add([60])
    assert birds.ids() == list(range(61))


def test_upserts_compaction_and_rebuilds_respect_partitions(birds: Birds) -> None:
    with birds.change_spec() as update:
        update.add_field("at.place", IdentityTransform(), "place")
    for begin in (10, 15, 20, 25):
        birds.add(range(begin, begin + 5))
    birds.add(range(8, 12), Upsert(("id",)))
    assert birds.ids() == list(range(30))

    done = birds.table.upkeep(UpkeepPolicy(min_files=2), LATER)

    assert done.files_compacted > 0
    assert birds.ids() == list(range(30))
    places = [task.file.partition[0] for task in birds.handle().scan("id >= 8").plan_files()]
    assert sorted(map(str, set(places))) == ["None", "field", "nest"]
    birds.replace(range(5))
    assert birds.ids() == list(range(5))
    assert len(list(birds.handle().scan().plan_files())) == 3
    birds.add([5])
    assert birds.ids() == list(range(6))


def test_rows_deleted_by_other_engines_do_not_reappear(tmp_path: Path) -> None:
    birds = Birds(tmp_path)
    birds.add(range(5))
    birds.add(range(5, 10))
    for task in list(birds.handle().scan().plan_files()):
        mark_deleted(birds.handle(), task.file.file_path, task.file.partition, [1, 2])
    left = [0, 3, 4, 5, 8, 9]
    assert birds.ids() == left

    birds.add([4, 20], Upsert(("id",)))
    birds.add(range(30, 35))
    left = [*left, 20, *range(30, 35)]
    assert birds.ids() == left
    # The file that the upsert has not touched has its marks still.
    assert sum(bool(task.delete_files) for task in birds.handle().scan().plan_files()) == 1
    done = birds.table.upkeep(UpkeepPolicy(min_files=2), LATER)
    assert done.files_compacted > 1
    assert birds.ids() == left
    birds.replace([1])
    assert birds.ids() == [1]


def test_null_lists_stay_null_with_delete_marks(tmp_path: Path) -> None:
    birds = Birds(tmp_path)
    birds.add(range(5))
    birds.add(range(5, 10))
    for task in list(birds.handle().scan().plan_files()):
        mark_deleted(birds.handle(), task.file.file_path, task.file.partition, [1])
    left = rows([0, 2, 3, 4, 5, 7, 8, 9]).to_pylist()
    assert birds.rows() == left

    birds.add([20], Upsert(("id",)))
    assert birds.table.upkeep(UpkeepPolicy(min_files=2), LATER).files_compacted > 1
    assert birds.rows() == left + rows([20]).to_pylist()


def test_file_that_gets_delete_marks_during_compaction_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    birds = Birds(tmp_path)
    birds.add(range(5))
    birds.add(range(5, 10))
    compacted = filerewrite.compact_files

    def raced(*args: Any) -> Any:
        swap = compacted(*args)
        task = next(iter(birds.handle().scan().plan_files()))
        mark_deleted(birds.handle(), task.file.file_path, task.file.partition, [0, 1, 2, 3, 4])
        return swap

    monkeypatch.setattr(filerewrite, "compact_files", raced)

    assert birds.table.upkeep(UpkeepPolicy(min_files=2), LATER).files_compacted == 0
    assert len(birds.ids()) == 5
