"""Iceberg: commits with a lost answer, and results that must not depend on snapshots."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Table as IcebergHandle
from pyiceberg.table import Transaction

from rookery.clock import SystemClock, Time
from rookery.errors import ConfigError
from rookery.tables.icebergexpiry import _Files
from rookery.tables.open import open_table
from rookery.tables.port import BatchName, Table, TableSpec, UpkeepPolicy
from tests.tables.independent import rows_of

SCHEMA = pa.schema([pa.field("id", pa.int64())])
LATER = Time(SystemClock().now_ms() + 30 * 24 * 3600 * 1000)


def add(table: Table, batch: int) -> bool:
    name = BatchName("birds", "a1", batch)
    rows = pa.RecordBatch.from_pylist([{"id": batch}], SCHEMA)
    return table.commit(name, table.stage(name, [rows], SCHEMA, "t"), SCHEMA)


def test_commit_that_succeeded_with_an_error_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = TableSpec("iceberg", str(tmp_path / "birds"), "birds")
    table = open_table(spec)
    add(table, 0)
    commit_table = SqlCatalog.commit_table
    failed: list[bool] = []

    def lost(*args: Any) -> Any:
        done = commit_table(*args)
        if not failed:
            failed.append(True)
            raise CommitStateUnknownException("the answer was lost")
        return done

    monkeypatch.setattr(SqlCatalog, "commit_table", lost)
    add(table, 1)

    assert failed
    assert rows_of(spec) == [(0,), (1,)]


def test_last_batch_is_known_after_its_snapshot_expired(tmp_path: Path) -> None:
    spec = TableSpec("iceberg", str(tmp_path / "birds"), "birds")
    table = open_table(spec)
    for batch in range(6):
        add(table, batch)
    table.upkeep(UpkeepPolicy(keep_ms=0, keep_versions=1), LATER)

    catalog = load_catalog("rookery", type="sql", uri=f"sqlite:///{tmp_path / 'catalog.db'}")
    birds = catalog.load_table("default.birds")
    assert len(birds.metadata.snapshots) == 1
    assert birds.properties["rookery.commit.birds"] == "a1:5"
    kept = {path.name for path in (tmp_path / "birds/data").glob("*.parquet")}
    needed = {task.file.file_path.rpartition("/")[2] for task in birds.scan().plan_files()}
    assert kept == needed
    assert len(list((tmp_path / "birds/metadata").glob("*.avro"))) <= 4
    assert not add(table, 5)


def test_a_snapshot_is_read_without_the_catalog(tmp_path: Path) -> None:
    table = open_table(TableSpec("iceberg", str(tmp_path / "birds"), "birds"))
    add(table, 0)
    snapshot = pickle.dumps(table.snapshot())
    (tmp_path / "catalog.db").unlink()

    moved = pickle.loads(snapshot)
    assert [part.to_pylist() for part in moved.read(moved.files)] == [[{"id": 0}]]
    assert not (tmp_path / "catalog.db").exists()


def test_locations_unsupported_by_pyiceberg_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="as they are"):
        open_table(TableSpec("iceberg", str(tmp_path / "with space"), "birds"))


def test_commit_loads_the_table_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_table(TableSpec("iceberg", str(tmp_path / "birds"), "birds"))
    for batch in range(20):
        add(table, batch)
    made = vars(Transaction)["table_metadata"].fget
    looks: list[Transaction] = []

    def look(transaction: Transaction) -> Any:
        looks.append(transaction)
        return made(transaction)

    monkeypatch.setattr(Transaction, "table_metadata", property(look))
    add(table, 20)

    # Each copies every snapshot; pyiceberg alone has eighteen and more.
    assert 0 < len(looks) <= 5


def test_versions_between_hourly_ones_are_removed_with_their_files(tmp_path: Path) -> None:
    spec = TableSpec("iceberg", str(tmp_path / "birds"), "birds")
    table = open_table(spec)
    for batch in range(12):
        add(table, batch)
    tomorrow = Time(SystemClock().now_ms() + 24 * 3600 * 1000)
    done = table.upkeep(UpkeepPolicy(keep_versions=2, min_files=100), tomorrow)

    # The commits may have begun in one hour and ended in the next.
    assert done.versions_expired in (9, 10)
    assert done.files_deleted >= done.versions_expired
    catalog = load_catalog("rookery", type="sql", uri=f"sqlite:///{tmp_path / 'catalog.db'}")
    birds = catalog.load_table("default.birds")
    assert len(birds.metadata.snapshots) == 12 - done.versions_expired
    for snapshot in birds.metadata.snapshots:
        assert len(birds.scan(snapshot_id=snapshot.snapshot_id).to_arrow()) > 0
    assert rows_of(spec) == [(batch,) for batch in range(12)]


def test_maintenance_during_commits_deletes_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spec = TableSpec("iceberg", str(tmp_path / "birds"), "birds")
    table = open_table(spec)
    for batch in range(30):
        add(table, batch)
    read = _Files.of
    read_before: list[_Files] = []

    def slowly(files: _Files, snapshots: Any) -> set[str]:
        entries = read(files, snapshots)
        if not read_before:
            read_before.append(files)
            for batch in range(30, 55):
                add(open_table(spec), batch)
        return entries

    monkeypatch.setattr(_Files, "of", slowly)
    done = table.upkeep(UpkeepPolicy(keep_ms=0, keep_versions=1, min_files=100), LATER)

    assert done.versions_expired == 30
    assert rows_of(spec) == [(batch,) for batch in range(55)]
    assert not caplog.records


def test_table_of_the_same_name_at_another_location_is_refused(tmp_path: Path) -> None:
    catalog = {"catalog": f"sqlite:///{tmp_path / 'catalog.db'}"}
    bronze = TableSpec("iceberg", str(tmp_path / "bronze/birds"), "", catalog)
    silver = TableSpec("iceberg", str(tmp_path / "silver/birds"), "", catalog)
    add(open_table(bronze), 0)

    with pytest.raises(ConfigError, match=r"'default.birds'.*bronze/birds.*silver/birds"):
        open_table(silver).check(SCHEMA)
    with pytest.raises(ConfigError, match="another `name` or `namespace`"):
        add(open_table(silver), 0)
    assert add(open_table(bronze), 1)


def test_retry_setting_of_other_writers_is_not_changed(tmp_path: Path) -> None:
    table = open_table(TableSpec("iceberg", str(tmp_path / "birds"), "birds"))
    add(table, 0)
    other = loaded(tmp_path)
    assert "commit.retry.num-retries" not in other.properties
    # What an earlier release has left.
    with other.transaction() as change:
        change.set_properties({"commit.retry.num-retries": "0"})
        change.remove_properties("rookery.layout")
    add(table, 1)
    assert "commit.retry.num-retries" not in loaded(tmp_path).properties
    with loaded(tmp_path).transaction() as change:
        change.set_properties({"commit.retry.num-retries": "0"})
    add(table, 2)
    assert loaded(tmp_path).properties["commit.retry.num-retries"] == "0"


def test_commit_that_lost_a_race_for_its_batch_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = TableSpec("iceberg", str(tmp_path / "birds"), "birds")
    add(open_table(spec), 0)
    commit_table = SqlCatalog.commit_table
    calls: list[int] = []

    def raced(*args: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == 1:
            add(open_table(spec), 1)  # Another driver commits the same batch.
        return commit_table(*args)

    monkeypatch.setattr(SqlCatalog, "commit_table", raced)

    assert not add(open_table(spec), 1)
    assert rows_of(spec) == [(0,), (1,)]
    assert len(calls) == 2


def loaded(folder: Path) -> IcebergHandle:
    catalog = load_catalog("rookery", type="sql", uri=f"sqlite:///{folder / 'catalog.db'}")
    return catalog.load_table("default.birds")


def test_other_pyiceberg_version_commits_without_the_cached_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spec = TableSpec("iceberg", str(tmp_path / "birds"), "birds")
    monkeypatch.setattr(pyiceberg, "__version__", "0.99.0")
    table = open_table(spec)
    add(table, 0)
    add(table, 1)

    assert rows_of(spec) == [(0,), (1,)]
    assert [line for line in caplog.messages if "pyiceberg 0.99.0 is not known" in line] != []
    assert len(caplog.messages) == 1
