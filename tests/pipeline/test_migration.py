"""Tables of an earlier release are migrated, and the pipeline continues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from rookery.cli.main import main
from rookery.errors import ConfigError
from rookery.pipeline.batch.engine import BatchEngine
from rookery.pipeline.declaration import names
from rookery.pipeline.declaration.columns import COORDINATES, RAW, WATERMARK
from rookery.pipeline.declaration.spec import Pipeline
from rookery.pipeline.manifests import Manifests, StagedFiles
from rookery.pipeline.reprocess.migration import migrations, rename_former
from rookery.tables import reservednames
from rookery.tables.open import open_table
from rookery.tables.port import BatchName, DataFile, Upsert
from tests.pipeline.test_engine import declared, engine_of, rows
from tests.tables.independent import rows_of

FORMER = pa.schema(
    [
        pa.field("id", pa.int64()),
        *(column.with_name(names.former(column.name)) for column in COORDINATES),
    ]
)


def test_column_names_are_not_reserved_by_any_engine() -> None:
    assert set(names.OWN) == {*COORDINATES.names, WATERMARK.name, names.KEY, names.DELETED}
    for name in (*names.OWN, *RAW.names):
        assert name not in reservednames.ICEBERG | reservednames.DELTA | reservednames.OTHERS
        assert not name.startswith(("_", "$", "metadata$"))


def test_columns_are_ours_only_if_rows_have_them() -> None:
    all_of_them = [names.former(own) for own in names.OWN]

    assert names.renames(["id", *FORMER.names], ["id", *COORDINATES.names]) == {
        names.former(name): name for name in COORDINATES.names
    }
    assert "_key" not in names.renames(all_of_them, COORDINATES.names)
    assert "_key" in names.renames(all_of_them, [*COORDINATES.names, names.KEY])
    assert names.renames(["_offset", "_topic"], COORDINATES.names) == {}
    assert names.renames([*all_of_them, names.OFFSET], COORDINATES.names) == {}


def sink_of(kind: str, rest: str = "") -> dict[str, str]:
    text = f'[[sinks]]\nlayer = "silver"\nformat = "{kind}"\nlocation = "other"\n'
    return {"rest": rest, "more": text}


def written_before(pipeline: Pipeline, engine: BatchEngine, batch: int, ids: range) -> None:
    """Commit rows with the former names to the fourth table, as an earlier release has."""
    table = open_table(pipeline.sinks[3].table())
    name = BatchName(pipeline.name, engine.origin.query, batch)
    upsert = pipeline.silver.upsert() and Upsert(("id",), ("_offset",), "_deleted")
    files = staged_before(pipeline, engine, batch, ids)
    table.commit(name, files, former_schema(pipeline), upsert or None)


def staged_before(
    pipeline: Pipeline, engine: BatchEngine, batch: int, ids: range
) -> list[DataFile]:
    name = BatchName(pipeline.name, engine.origin.query, batch)
    schema = former_schema(pipeline)
    batch_rows = pa.RecordBatch.from_pylist(
        [{"id": number, "_topic": "birds", "_partition": 0, "_offset": number} for number in ids],
        schema,
    )
    table = open_table(pipeline.sinks[3].table())
    return table.stage(name, [batch_rows], schema, "before")


def former_schema(pipeline: Pipeline) -> pa.Schema:
    return FORMER.append(pa.field("_deleted", pa.bool_())) if pipeline.silver.upsert() else FORMER


def offsets(pipeline: Pipeline) -> list[tuple[int, int, int]]:
    """Return ids and offsets as other programs find them, and see that we find the same."""
    spec = pipeline.sinks[3].table()
    mine = [row for part in open_table(spec).read() for row in part.to_pylist()]
    assert not any(name.startswith("_") for row in mine for name in row)
    ours = sorted((row["id"], row[names.PARTITION], row[names.OFFSET]) for row in mine)
    others = [(row[0], row[2], row[3]) for row in rows_of(spec)]
    assert others == ours
    return ours


def migrated(pipeline: Pipeline, engine: BatchEngine) -> None:
    for migration in migrations(pipeline, engine.plan.sinks):
        migration.run(may_rewrite=True)


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("kind", ["iceberg", "duckdb", "parquet", "delta"])
def test_migrated_table_continues(tmp_path: Path, kind: str, mode: str) -> None:
    rest = '[silver]\nmode = "upsert"\nkeys = ["id"]\n' if mode == "upsert" else ""
    pipeline = declared(tmp_path, **sink_of(kind, rest))
    before = engine_of(pipeline)
    written_before(pipeline, before, -1, range(3))
    if kind in ("parquet", "delta"):
        with pytest.raises(ConfigError, match="rookery pipeline migrate FILE"):
            engine_of(pipeline)
        migrated(pipeline, before)
    engine = engine_of(pipeline)
    assert offsets(pipeline) == [(n, 0, n) for n in range(3)]
    engine.run(rows(2, 3))

    more = [(2, 0, 2)] if mode == "append" else []
    assert offsets(pipeline) == sorted([*((n, 0, n) for n in range(5)), *more])
    assert not list(migrations(pipeline, engine.plan.sinks))


@pytest.mark.parametrize("kind", ["iceberg", "duckdb", "parquet", "delta"])
def test_batch_staged_before_a_migration_is_committed(tmp_path: Path, kind: str) -> None:
    pipeline = declared(tmp_path, **sink_of(kind, '[silver]\nmode = "upsert"\nkeys = ["id"]\n'))
    engine = engine_of(pipeline)
    written_before(pipeline, engine, -1, range(3))
    migrated(pipeline, engine)

    def stop(step: str) -> None:
        if step.startswith("commit"):
            raise KeyboardInterrupt

    engine.hook = stop
    with pytest.raises(KeyboardInterrupt):
        engine.run(rows(0, 5))
    rewrite_manifest(pipeline, staged_before(pipeline, engine, 0, range(2, 5)))
    engine_of(pipeline)

    assert offsets(pipeline) == [(n, 0, n) for n in range(5)]


def rewrite_manifest(pipeline: Pipeline, files: list[DataFile]) -> None:
    """Make the last batch one of an earlier release: its files have the former names."""
    manifests = Manifests(pipeline.state)
    last: Any = manifests.last()
    key = next(key for key in last.sinks if " other" in key or "/other" in key)
    last.sinks[key] = StagedFiles.of(tuple(files), former_schema(pipeline))
    path = next((Path(pipeline.state) / "batches").glob("*.json"))
    path.unlink()
    manifests.add(last)


def test_iceberg_columns_keep_their_ids(tmp_path: Path) -> None:
    pipeline = declared(tmp_path, **sink_of("iceberg"))
    engine = engine_of(pipeline)
    written_before(pipeline, engine, -1, range(3))

    def ids() -> list[int]:
        catalog = load_catalog("rookery", type="sql", uri=f"sqlite:///{tmp_path / 'catalog.db'}")
        return [field.field_id for field in catalog.load_table("default.other").schema().fields]

    before = ids()
    engine_of(pipeline)
    assert ids() == before
    wider = declared(tmp_path, "id long, name string", **sink_of("iceberg"))
    engine_of(wider).run(rows(3, 1))
    # The names of old files are still known after the schema has grown.
    assert offsets(wider) == [(n, 0, n) for n in range(4)]


@pytest.mark.parametrize("kind", ["iceberg", "duckdb", "parquet", "delta"])
def test_gold_of_all_columns_is_renamed(tmp_path: Path, kind: str) -> None:
    pipeline = declared(tmp_path, **sink_of(kind))
    engine = engine_of(pipeline)
    written_before(pipeline, engine, -1, range(3))
    table = open_table(pipeline.sinks[3].table())

    for _ in range(2):
        rename_former(table, engine.plan.sinks[3])
    rename_former(open_table(pipeline.sinks[1].table()), engine.plan.sinks[1])

    assert offsets(pipeline) == [(n, 0, n) for n in range(3)]


def test_migrate_command_migrates_all_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = declared(tmp_path, **sink_of("delta"))
    written_before(pipeline, engine_of(pipeline), -1, range(3))

    assert main(["pipeline", "migrate", str(tmp_path / "birds.toml")]) == 0
    assert "_offset is rookery_offset" in capsys.readouterr().out
    assert main(["pipeline", "migrate", str(tmp_path / "birds.toml")]) == 0
    assert "0 tables migrated" in capsys.readouterr().out
    assert offsets(pipeline) == [(n, 0, n) for n in range(3)]


def test_column_name_of_an_earlier_release_is_explained(tmp_path: Path) -> None:
    rest = 'key = "utf8"\n[silver]\nmode = "upsert"\nkeys = ["_key"]\n'

    with pytest.raises(ConfigError, match="_key is called rookery_key now"):
        engine_of(declared(tmp_path, rest=rest))
    with pytest.raises(ConfigError, match="'Rookery_Offset' is the pipeline's own name"):
        engine_of(declared(tmp_path, "Rookery_Offset long"))


@pytest.mark.parametrize(("kind", "name"), [("iceberg", "_File"), ("delta", "_change_type")])
def test_names_that_an_engine_reserves_are_refused(tmp_path: Path, kind: str, name: str) -> None:
    engine = engine_of(declared(tmp_path, f"id long, {name} string", **sink_of(kind)))

    with pytest.raises(ConfigError, match=f"{name}.*keeps that name for itself"):
        engine.run(rows(0, 1))
    assert engine.manifests.last() is None
