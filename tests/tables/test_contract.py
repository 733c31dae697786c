"""The contract of all table formats; other programs read the results."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rookery.clock import SystemClock, Time
from rookery.errors import ConfigError
from rookery.tables.open import formats, open_table
from rookery.tables.port import BatchName, Table, TableSpec, UpkeepPolicy, Upsert
from tests.tables.independent import rows_of

FORMATS = ["delta", "duckdb", "iceberg", "parquet"]
COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "name": pa.string()}
SCHEMA = pa.schema(COLUMNS)
NOW = SystemClock().now_ms()
LATER = Time(NOW + 30 * 24 * 3600 * 1000)


def name(batch: int, query: str = "a1", pipeline: str = "birds") -> BatchName:
    return BatchName(pipeline, query, batch)


def batch(*rows: tuple[int, str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": id_, "name": text} for id_, text in rows], SCHEMA)


@pytest.fixture(params=FORMATS)
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> TableSpec:
    return TableSpec(request.param, str(tmp_path / "birds"), "birds")


@pytest.fixture
def table(spec: TableSpec) -> Table:
    return open_table(spec)


def add(table: Table, named: BatchName, *rows: tuple[int, str]) -> bool:
    files = table.stage(named, [batch(*rows)], SCHEMA, f"t-{named.query}")
    return table.commit(named, files, SCHEMA)


def read(table: Table) -> list[tuple[object, ...]]:
    return sorted(
        (tuple(row.values()) for part in table.read() for row in part.to_pylist()), key=repr
    )


def test_all_formats_are_tested() -> None:
    assert set(FORMATS) | {"topic"} == set(formats())


def test_an_unknown_format_is_refused_with_a_choice() -> None:
    with pytest.raises(ConfigError, match="parquet"):
        open_table(TableSpec("orc", "/nowhere"))


def test_staged_rows_are_invisible_before_the_first_commit(table: Table) -> None:
    table.stage(name(0), [batch((1, "a"))], SCHEMA, "t0")

    assert (table.schema(), table.last_commit("birds"), read(table)) == (None, None, [])


def test_committed_rows_are_visible_and_staged_rows_are_not(spec: TableSpec) -> None:
    table = pickle.loads(pickle.dumps(open_table(spec)))
    add(table, name(0), (1, "a"), (2, "b"))
    table.stage(name(0), [batch((9, "z"))], SCHEMA, "never")

    assert rows_of(spec) == [(1, "a"), (2, "b")]
    assert read(table) == [(1, "a"), (2, "b")]
    assert table.last_commit("birds") == name(0)


def test_batch_is_committed_once(spec: TableSpec) -> None:
    table = open_table(spec)
    files = table.stage(name(0), [batch((1, "a"))], SCHEMA, "t0")

    assert table.commit(name(0), files, SCHEMA)
    assert not table.commit(name(0), files, SCHEMA)
    assert not open_table(spec).commit(name(0), files, SCHEMA)
    assert rows_of(spec) == [(1, "a")]


def test_pipelines_commit_to_a_table_independently(spec: TableSpec, table: Table) -> None:
    add(table, name(7), (1, "a"))
    add(table, name(0, "b2", "backfill"), (2, "b"))
    add(table, name(8), (3, "c"))

    assert rows_of(spec) == [(1, "a"), (2, "b"), (3, "c")]
    assert table.last_commit("birds") == name(8)
    assert table.last_commit("backfill") == name(0, "b2", "backfill")


def test_another_query_under_the_same_name_is_refused(spec: TableSpec, table: Table) -> None:
    add(table, name(4), (1, "a"))

    with pytest.raises(ConfigError, match=r"query a1 up to batch 4.*query b2.*state"):
        add(table, name(0, "b2"), (1, "a"))
    with pytest.raises(ConfigError, match="old copy"):
        add(table, name(3), (1, "a"))
    assert rows_of(spec) == [(1, "a")]


def test_empty_batch_is_recorded(table: Table) -> None:
    add(table, name(0), (1, "a"))
    table.commit(name(1), [], SCHEMA)

    assert table.last_commit("birds") == name(1)
    assert read(table) == [(1, "a")]


def test_new_columns_are_added_automatically(spec: TableSpec, table: Table) -> None:
    add(table, name(0), (1, "a"))
    wide = SCHEMA.append(pa.field("size", pa.float64()))
    rows = pa.RecordBatch.from_pylist([{"id": 2, "name": "b", "size": 1.5}], wide)

    table.commit(name(1), table.stage(name(1), [rows], wide, "t1"), wide)
    add(table, name(2), (3, "c"))

    assert rows_of(spec) == [(1, "a", None), (2, "b", 1.5), (3, "c", None)]
    assert read(table) == [(1, "a", None), (2, "b", 1.5), (3, "c", None)]


def test_integers_are_widened_where_the_format_allows(spec: TableSpec, table: Table) -> None:
    narrow = pa.schema([pa.field("id", pa.int32())])
    rows = pa.RecordBatch.from_pylist([{"id": 1}], narrow)
    table.commit(name(0), table.stage(name(0), [rows], narrow, "t0"), narrow)
    wide = pa.schema([pa.field("id", pa.int64())])
    rows = pa.RecordBatch.from_pylist([{"id": 1 << 40}], wide)
    files = table.stage(name(1), [rows], wide, "t1")

    if spec.format == "delta":
        with pytest.raises(ConfigError, match="can add columns, not widen"):
            table.commit(name(1), files, wide)
    else:
        table.commit(name(1), files, wide)
        assert rows_of(spec) == [(1,), (1 << 40,)]


def test_a_column_that_changes_its_type_is_refused(spec: TableSpec, table: Table) -> None:
    add(table, name(0), (1, "a"))
    other = pa.schema([("id", pa.string())])
    rows = pa.RecordBatch.from_pylist([{"id": "x"}], other)

    with pytest.raises(ConfigError, match=r"'id' is int64 and would become string"):
        table.commit(name(1), table.stage(name(1), [rows], other, "t1"), other)
    assert rows_of(spec) == [(1, "a")]


def test_concurrent_writers_lose_nothing(spec: TableSpec) -> None:
    if spec.format == "duckdb":
        pytest.skip("one process writes to a DuckDB file, one commit at a time")
    add(open_table(spec), name(0), (0, "first"))

    def write(writer: int) -> None:
        table = open_table(spec)
        for number in range(4):
            row = (writer * 10 + number, "x")
            assert add(table, name(number, f"{writer}", f"writer {writer}"), row)
            table.upkeep(UpkeepPolicy(min_files=2), SystemClock().now_ms())

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(write, writer) for writer in (1, 2, 3)]:
            done.result()

    expected = [writer * 10 + number for writer in (1, 2, 3) for number in range(4)]
    assert [row[0] for row in rows_of(spec)] == [0, *expected]


CHANGES = SCHEMA.append(pa.field("_deleted", pa.bool_())).append(pa.field("at", pa.int64()))


def changes_of(*rows: tuple[int, str | None, bool, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [dict(zip(CHANGES.names, row, strict=True)) for row in rows], CHANGES
    )


def change(table: Table, named: BatchName, *rows: tuple[int, str | None, bool, int]) -> bool:
    upsert = Upsert(("id",), ("at",), "_deleted")
    files = table.stage(named, [changes_of(*rows)], CHANGES, "t")
    return table.commit(named, files, CHANGES, upsert)


def test_upserts_replace_rows_of_the_same_key(spec: TableSpec, table: Table) -> None:
    change(table, name(0), (1, "a", False, 1), (2, "b", False, 2), (3, "c", False, 3))
    change(table, name(1), (4, "d", False, 4))
    change(table, name(2), (2, "B", False, 9), (2, "older", False, 5), (3, None, True, 6))
    assert not change(table, name(2), (1, "never", False, 10))

    assert rows_of(spec) == [(1, "a", 1), (2, "B", 9), (4, "d", 4)]


Row = tuple[int, str | None, bool, int]


@pytest.mark.parametrize("bucket_bytes", [2000, 1 << 20])
def test_large_upserts_are_done_in_parts(spec: TableSpec, table: Table, bucket_bytes: int) -> None:
    """Against a dictionary: several files a batch, many keys, some of them deleted."""
    upsert = Upsert(("id",), ("at",), "_deleted", bucket_bytes)
    model: dict[int, tuple[int, str | None, int]] = {}
    draw = random.Random(7)
    for number in range(4):
        rows: list[Row] = [
            (draw.randrange(300), f"bird {at}", draw.random() < 0.2, number * 1000 + at)
            for at in range(400)
        ]
        shuffled = draw.sample(rows, len(rows))
        files = [
            file
            for at in range(0, 400, 100)
            for file in table.stage(
                name(number), [changes_of(*shuffled[at : at + 100])], CHANGES, f"t{at}"
            )
        ]
        assert table.commit(name(number), files, CHANGES, upsert)
        for id_, text, is_deleted, at in rows:
            model.pop(id_, None)
            if not is_deleted:
                model[id_] = (id_, text, at)

    assert rows_of(spec) == sorted(model.values())
    if spec.format != "duckdb":
        # What parts exchange is gone; all else is what was staged, and the table.
        names = [path.name for path in files_below(spec)]
        assert not [
            file_name for file_name in names if "-part-" in file_name or "-keys-" in file_name
        ]


def test_parts_of_an_upsert_can_run_on_other_hosts(spec: TableSpec, table: Table) -> None:
    ran: list[str] = []

    def run(tasks: Sequence[Any]) -> list[Any]:
        ran.extend(type(task).__name__ for task in tasks)
        # As if they came back from other hosts, where they ended in another order.
        results = {at: pickle.dumps(pickle.loads(pickle.dumps(tasks[at]))()) for at in
                 reversed(range(len(tasks)))}  # fmt: skip
        return [pickle.loads(results[at]) for at in range(len(tasks))]

    rows: list[Row] = [(at, "x" * 50, False, at) for at in range(200)]
    upsert = Upsert(("id",), ("at",), "_deleted", 400)
    for number in range(2):
        files = table.stage(name(number), [changes_of(*rows)], CHANGES, "t")
        assert table.commit(name(number), files, CHANGES, upsert, run)
    assert rows_of(spec) == [(at, "x" * 50, at) for at in range(200)]
    assert "_Split" in ran
    assert spec.format == "duckdb" or {"_LatestRows", "_Rewrite"} <= set(ran)


def test_widened_keys_still_match_their_rows(spec: TableSpec, table: Table) -> None:
    if spec.format == "delta":
        pytest.skip("columns of a Delta table are not widened")
    for number, (kind, ids) in enumerate(((pa.int32(), [1, 2]), (pa.int64(), [1 << 40, 2]))):
        schema = pa.schema([pa.field("id", kind), pa.field("batch", pa.int64())])
        rows = [{"id": id_, "batch": number} for id_ in ids]
        files = table.stage(
            name(number), [pa.RecordBatch.from_pylist(rows, schema)], schema, f"t{number}"
        )
        assert table.commit(name(number), files, schema, Upsert(("id",)))

    assert rows_of(spec) == [(1, 0), (2, 1), (1 << 40, 1)]


def test_upsert_requires_its_keys(table: Table) -> None:
    files = table.stage(name(0), [batch((1, "b"))], SCHEMA, "t1")

    with pytest.raises(ConfigError, match="no such column"):
        table.commit(name(1), files, SCHEMA, Upsert(("nothing",)))


def test_a_table_can_be_replaced_as_a_whole(spec: TableSpec, table: Table) -> None:
    add(table, name(0), (1, "a"), (2, "b"))
    files = table.stage(name(0), [batch((5, "e"))], SCHEMA, "t1")

    assert table.replace(name(1), files, SCHEMA)
    assert not table.replace(name(1), files, SCHEMA)
    assert rows_of(spec) == [(5, "e")]


@pytest.fixture
def many(spec: TableSpec, table: Table) -> list[tuple[int, str]]:
    rows = [(number, f"bird {number}") for number in range(40)]
    for number, row in enumerate(rows):
        add(table, name(number), row)
    return rows


def files_below(spec: TableSpec) -> set[Path]:
    return {path for path in Path(spec.location).rglob("*.parquet") if path.is_file()}


def test_maintenance_merges_and_deletes_small_files(
    spec: TableSpec, table: Table, many: list[tuple[int, str]]
) -> None:
    done = table.upkeep(UpkeepPolicy(keep_ms=0, keep_versions=1), LATER)

    assert rows_of(spec) == many
    assert read(table) == sorted(many, key=repr)
    if spec.format != "duckdb":
        assert (done.files_compacted, done.files_written) == (40, 1)
        assert done.files_deleted >= 40
        # The checkpoint of a Delta log is Parquet as well.
        assert len([path for path in files_below(spec) if path.parent.name == "data"]) == 1
    assert table.last_commit("birds") == name(39)
    assert not add(table, name(39), (0, "again"))


def test_maintenance_keeps_young_files(
    spec: TableSpec, table: Table, many: list[tuple[int, str]]
) -> None:
    before = files_below(spec)
    staged = table.stage(name(0), [batch((41, "later"))], SCHEMA, "t41")

    done = table.upkeep(UpkeepPolicy(), SystemClock().now_ms())

    assert done.files_deleted == 0
    assert before <= files_below(spec)
    assert table.commit(name(40), staged, SCHEMA)
    assert rows_of(spec) == [*many, (41, "later")]


def test_maintenance_keeps_files_within_the_retention(
    spec: TableSpec, table: Table, many: list[tuple[int, str]]
) -> None:
    before = files_below(spec)

    done = table.upkeep(UpkeepPolicy(keep_ms=59 * 60 * 1000), SystemClock().now_ms())

    assert spec.format == "duckdb" or done.files_compacted == 40
    assert before <= files_below(spec)


@pytest.mark.parametrize("kind", [pa.uint32(), pa.time32("ms")])
def test_a_type_that_a_format_would_change_is_refused_before_anything_is_written(
    spec: TableSpec, table: Table, kind: pa.DataType
) -> None:
    schema = pa.schema([pa.field("id", kind)])
    if spec.format == "parquet" or (spec.format, kind) == ("duckdb", pa.uint32()):
        table.check(schema)
    else:
        with pytest.raises(ConfigError, match=spec.name):
            table.check(schema)
    assert table.schema() is None
    assert files_below(spec) == set()


def test_abandoned_files_are_deleted(spec: TableSpec, table: Table) -> None:
    add(table, name(0), (1, "a"))
    table.stage(name(0), [batch((2, "b"))], SCHEMA, "abandoned")

    done = table.upkeep(UpkeepPolicy(keep_ms=0), LATER)

    assert done.files_deleted == 1
    assert rows_of(spec) == [(1, "a")]


def test_snapshot_can_be_pickled(spec: TableSpec, table: Table) -> None:
    assert table.snapshot() is None
    add(table, name(0), (1, "a"), (2, "b"))
    snapshot = table.snapshot()
    assert (snapshot is None) is (spec.format == "duckdb")  # whose rows are not in files
    if snapshot is None:
        return
    moved = pickle.loads(pickle.dumps(snapshot))

    rows = [tuple(row.values()) for part in moved.read(moved.files) for row in part.to_pylist()]
    assert rows == [(1, "a"), (2, "b")]
    assert moved.schema == table.schema()
