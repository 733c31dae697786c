"""Schemas of a registry that change during a pipeline: rows that do not fit are dead letters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rookery.errors import ConfigError
from rookery.pipeline.batch.engine import BatchEngine, BatchPlan
from rookery.pipeline.declaration.load import load
from rookery.pipeline.declaration.spec import Pipeline
from rookery.pipeline.manifests import Manifests
from rookery.pipeline.metrics import BatchMetrics
from rookery.testing.registry import RegistryServer
from tests.pipeline.localrows import LocalRows, raw
from tests.pipeline.registered import avro, proto, protobuf, record, registrable
from tests.tables.independent import rows_of

DECLARED = """
name = "birds"
[source]
data = "nowhere"
topics = ["birds"]
[topics.birds]
value = "{value}"
registry = "{url}"
subject = "birds-value"
{rest}
[[sinks]]
layer = "bronze"
format = "parquet"
location = "bronze"
[[sinks]]
layer = "silver"
format = "{format}"
location = "silver"
[[sinks]]
layer = "dead-letters"
format = "parquet"
location = "dead"
"""
NARROW = record(id="int")
WIDE = record(id="long", name=["null", "string"])
OTHER = record(id="string", name=["null", "string"])


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as made:
        yield made


class Run:
    """A pipeline over one partition, whose batches are given to it."""

    def __init__(self, folder: Path, registry: RegistryServer, **more: str) -> None:
        text = DECLARED
        for name, value in {
            "value": "avro", "format": "parquet", "rest": "", "url": registry.url, **more,
        }.items():  # fmt: skip
            text = text.replace(f"{{{name}}}", value)
        path = folder / "birds.toml"
        path.write_text(text)
        self.pipeline: Pipeline = load(path)
        self.engine = self._opened()

    def _opened(self) -> BatchEngine:
        manifests = Manifests(self.pipeline.state)
        origin = manifests.origin() or manifests.begin({"birds": {"0": 0}})
        engine = BatchEngine(BatchPlan.of(self.pipeline), self.pipeline.name, manifests, origin)
        engine.recover()
        return engine

    def again(self) -> None:
        """Start again, as the next run does."""
        self.engine = self._opened()

    def take(self, *values: bytes) -> BatchMetrics:
        """Run a batch, as `run_pipeline` does."""
        assert self.engine.plan.may_grow
        self.engine.plan = BatchPlan.of(self.pipeline, self.engine.plan)
        begin = self.engine.ends()["birds"]["0"]
        rows: Any = LocalRows([raw(values, begin=begin)])
        metrics = self.engine.run(rows)
        assert metrics is not None
        return metrics

    @property
    def silver(self) -> list[tuple[object, ...]]:
        return rows_of(self.pipeline.sinks[1])

    @property
    def dead(self) -> list[dict[str, object]]:
        names = [*self.engine.plan.sinks[2].names]
        return [dict(zip(names, row, strict=True)) for row in rows_of(self.pipeline.sinks[2])]


@pytest.mark.parametrize("kind", ["parquet", "iceberg", "delta", "duckdb"])
def test_changed_type_makes_dead_letters_and_stops_nothing(
    tmp_path: Path, registry: RegistryServer, kind: str
) -> None:
    first = registry.register("birds-value", json.dumps(WIDE))
    run = Run(tmp_path, registry, format=kind)
    assert run.take(avro(first, WIDE, id=1, name="a")).alerts == []
    other = registry.register("birds-value", json.dumps(OTHER))
    told = run.take(
        avro(other, OTHER, id="x", name="b"), avro(first, WIDE, id=3, name="c"),
    )  # fmt: skip
    run.again()
    run.take(avro(other, OTHER, id="y", name="d"), avro(first, WIDE, id=5, name="e"))

    assert [row[:2] for row in run.silver] == [(1, "a"), (3, "c"), (5, "e")]
    assert [(row["offset"], row["stage"], row["schema_id"]) for row in run.dead] == [
        (1, "decode", other),
        (3, "decode", other),
    ]
    assert {row["reason"] for row in run.dead} == {
        "not Avro: the writer's schema does not fit the reader's"
    }
    [alert] = told.alerts
    assert "version 2 of subject 'birds-value' is not used, version 1 is" in alert
    assert "'id'" in alert


def test_next_compatible_version_is_used_again(tmp_path: Path, registry: RegistryServer) -> None:
    first = registry.register("birds-value", json.dumps(NARROW))
    run = Run(tmp_path, registry)
    run.take(avro(first, NARROW, id=1))
    registry.register("birds-value", json.dumps(OTHER))
    run.take(avro(first, NARROW, id=2))
    third = registry.register("birds-value", json.dumps(WIDE))
    told = run.take(avro(third, WIDE, id=1 << 40, name="wide"), avro(first, NARROW, id=4))

    assert told.alerts == []
    rows = [(row[0], row[-1]) for row in run.silver]
    assert sorted(rows, key=repr) == [
        (1, None), (1 << 40, "wide"), (2, None), (4, None),
    ]  # fmt: skip
    assert told.rows["dead-letters"] == 0


def test_removed_key_column_is_kept_by_readers(tmp_path: Path, registry: RegistryServer) -> None:
    first = registry.register("birds-value", json.dumps(WIDE))
    rest = '[silver]\nmode = "upsert"\nkeys = ["id"]\n'
    run = Run(tmp_path, registry, rest=rest)
    run.take(avro(first, WIDE, id=1, name="a"))
    nameless = record(name=["null", "string"])
    without = registry.register("birds-value", json.dumps(nameless))
    run.take(avro(without, nameless, name="b"), avro(first, WIDE, id=1, name="c"))

    assert [row[:2] for row in run.silver] == [(1, "c")]
    [dead] = run.dead
    assert dead["schema_id"] == without


def test_protobuf_fields_with_changed_types_are_handled(
    tmp_path: Path, registry: RegistryServer
) -> None:
    old, new = proto(id="long", name="string"), proto(id="string", name="string")
    first = registry.register("birds-value", registrable(old), "PROTOBUF")
    run = Run(tmp_path, registry, value="protobuf")
    run.take(protobuf(first, old, id=1, name="a"))
    other = registry.register("birds-value", registrable(new), "PROTOBUF")
    run.take(protobuf(other, new, id="x", name="b"), protobuf(first, old, id=3, name="c"))

    assert [row[:2] for row in run.silver] == [(1, "a"), (3, "c")]
    [dead] = run.dead
    assert (dead["offset"], dead["schema_id"]) == (1, other)
    reason = f"schema {other} cannot be used: field 'id' is string there and int64 here"
    assert dead["reason"] == reason


def test_declaration_that_fits_no_version_is_refused(
    tmp_path: Path, registry: RegistryServer
) -> None:
    registry.register("birds-value", json.dumps(NARROW))
    registry.register("birds-value", json.dumps(WIDE))

    with pytest.raises(ConfigError, match=r"silver\.checks\.big: 'size > 1'"):
        Run(tmp_path, registry, rest='[silver.checks]\nbig = "size > 1"\n')


def test_nanosecond_timestamps_are_truncated_to_microseconds(
    tmp_path: Path, registry: RegistryServer
) -> None:
    timed = record(id="int", at={"type": "long", "logicalType": "timestamp-nanos"})
    first = registry.register("birds-value", json.dumps(timed))
    run = Run(tmp_path, registry)
    run.take(avro(first, timed, id=1, at=1_700_000_000_123_456_789))

    [row] = run.silver
    assert str(row[1]) == "2023-11-14 22:13:20.123456+00:00"
