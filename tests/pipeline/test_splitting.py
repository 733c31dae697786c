"""Raw rows are split into good rows, dead letters and late rows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from rookery.decode.open import open_decoder
from rookery.decode.port import DecoderSettings
from rookery.errors import ConfigError
from rookery.pipeline.batch.engine import BatchPlan
from rookery.pipeline.batch.rowsplitter import RowSplitter, Split
from rookery.pipeline.declaration.columns import silver_schema
from rookery.pipeline.declaration.spec import Decode, Pipeline, Silver, Sink, Source
from tests.pipeline.localrows import START_MS, bird, raw

BIRD = "id long, name string, seen timestamp"
CHANGE = "op string, before struct<id long, name string>, after struct<id long, name string>"


def pipeline(schema: str = BIRD, **silver: Any) -> Pipeline:
    layers: list[Any] = ["bronze", "silver", "dead-letters", "late"]
    return Pipeline(
        name="birds",
        state="/nowhere",
        source=Source(topics=("birds",), data="/nowhere"),
        topics={"birds": Decode(schema=schema)},
        silver=Silver(**silver),
        sinks=tuple(Sink(layer=layer, format="parquet", location=f"/{layer}") for layer in layers),
    )


def split(declared: Pipeline, values: list[bytes | None], watermark_ms: int | None = None) -> Split:
    schema = declared.topics["birds"].schema
    decoder = open_decoder("json", DecoderSettings(schema=schema))
    splitter = RowSplitter(declared, "birds", decoder, silver_schema(declared, "birds", decoder))
    return splitter.split(raw(values), watermark_ms)


def offsets(rows: pa.RecordBatch, name: str = "rookery_offset") -> list[Any]:
    return rows.column(name).to_pylist()


def test_every_record_is_in_one_part_except_those_without_a_value() -> None:
    parts = split(pipeline(), [bird(0), b"{", None, b"[1]", bird(4)])

    assert offsets(parts.good) == [0, 4]
    assert offsets(parts.dead, "offset") == [1, 3]
    assert parts.dead.column("value").to_pylist() == [b"{", b"[1]"]
    assert parts.dead.column("stage").to_pylist() == ["decode", "decode"]
    assert all(parts.dead.column("reason").to_pylist())
    assert parts.late.num_rows == 0


def test_rows_that_fail_a_check_are_dead_letters_with_its_name() -> None:
    declared = pipeline(checks={"named": "length(name) > 0", "five": "CAST(name AS INT) = 5"})
    names = ["5", "", "x", "6", None]
    values: list[bytes | None] = [json.dumps({"id": 1, "name": name}).encode() for name in names]

    parts = split(declared, values)

    assert offsets(parts.good) == [0]
    assert parts.dead.column("reason").to_pylist() == [
        "check 'named' is not true",
        "check 'five' is not true",
        "check 'five' is not true",
        "check 'named' is not true",
    ]


def test_a_check_that_cannot_be_evaluated_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match=r"silver.checks.wrong: 'nothing > 1'"):
        BatchPlan.of(pipeline(checks={"wrong": "nothing > 1"}))


def test_late_rows_are_put_aside_with_the_watermark() -> None:
    declared = pipeline(event_time="seen", watermark="10 minutes")
    times = [START_MS, START_MS - 1, START_MS + 5]
    values: list[bytes | None] = [
        json.dumps({"id": number, "seen": _text(ms)}).encode() for number, ms in enumerate(times)
    ]

    parts = split(declared, [*values, b'{"id": 3}'], START_MS)

    assert offsets(parts.good) == [0, 2]
    assert offsets(parts.late) == [1]
    assert parts.late.column("rookery_watermark").cast(pa.int64()).to_pylist() == [START_MS * 1000]
    assert parts.dead.column("reason").to_pylist() == ["seen is null"]


def _text(ms: int) -> str:
    return str(pa.scalar(ms, pa.timestamp("ms")).cast(pa.string()).as_py()).replace(" ", "T") + "Z"


def change(op: str, before: Any, after: Any) -> bytes:
    return json.dumps({"op": op, "before": before, "after": after}).encode()


def test_change_events_become_rows_and_deletions() -> None:
    declared = pipeline(CHANGE, mode="upsert", keys=("id",), debezium=True)
    before, after = {"id": 1, "name": "a"}, {"id": 1, "name": "b"}

    parts = split(
        declared,
        [
            change("c", None, before),
            change("u", before, after),
            change("r", None, {"id": 5, "name": "e"}),
            change("d", after, None),
            None,
            change("t", None, None),
            change("d", None, None),
            change("c", None, {"name": "no key"}),
        ],
    )

    assert parts.good.select(["id", "name", "rookery_deleted"]).to_pylist() == [
        {"id": 1, "name": "a", "rookery_deleted": False},
        {"id": 1, "name": "b", "rookery_deleted": False},
        {"id": 5, "name": "e", "rookery_deleted": False},
        {"id": 1, "name": "b", "rookery_deleted": True},
    ]
    assert parts.dead.column("reason").to_pylist() == [
        "op is 't', not c, u, r or d",
        "op is 'd', but before is null",
        "id is null",
    ]


def test_a_null_value_deletes_the_row_of_the_records_key() -> None:
    declared = pipeline("id long", mode="upsert", keys=("rookery_key",))
    declared = replace(declared, topics={"birds": Decode(schema="id long", key="utf8")})

    parts = split(declared, [b'{"id": 1}', None])

    assert parts.good.select(["rookery_key", "id", "rookery_deleted"]).to_pylist() == [
        {"rookery_key": "k0", "id": 1, "rookery_deleted": False},
        {"rookery_key": "k1", "id": None, "rookery_deleted": True},
    ]


@pytest.mark.parametrize(
    ("silver", "words"),
    [
        ({"mode": "upsert"}, "silver.keys"),
        ({"debezium": True}, "silver.debezium"),
        ({"event_time": "seen"}, "go together"),
        ({"dedupe": True, "keys": ("id",)}, "watermark"),
        ({"event_time": "seen", "watermark": "soon"}, "not a span of time"),
        ({"mode": "merge"}, "silver.mode 'merge', not of append, upsert"),
    ],
)
def test_contradicting_settings_are_refused(silver: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        pipeline(**silver)


def test_keys_that_are_not_columns_are_refused() -> None:
    with pytest.raises(ConfigError, match="no column 'nest'"):
        BatchPlan.of(pipeline(mode="upsert", keys=("nest",)))
    with pytest.raises(ConfigError, match="op, before and after"):
        BatchPlan.of(pipeline(mode="upsert", keys=("id",), debezium=True))


@pytest.mark.parametrize("kind", ["string", "double", "date", "decimal(20,0)", "struct<x int>"])
def test_event_times_of_other_types_are_refused(kind: str) -> None:
    declared = pipeline(f"id long, at {kind}", event_time="at", watermark="1 hour")
    with pytest.raises(ConfigError, match=r"silver.event-time: 'at' is .* must be a timestamp"):
        BatchPlan.of(declared)


@pytest.mark.parametrize("kind", ["long", "timestamp", "timestamp_ntz"])
def test_event_times_are_timestamps_or_milliseconds(kind: str) -> None:
    plan = BatchPlan.of(pipeline(f"id long, at {kind}", event_time="at", watermark="1 hour"))
    [schema] = plan.silver.values()
    assert "at" in schema.names


@pytest.mark.parametrize("kind", ["struct<x int>", "array<int>", "map<string, int>"])
def test_upserts_by_a_nested_column_are_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"silver.keys: 'k' is .* plain columns"):
        BatchPlan.of(pipeline(f"id long, k {kind}", mode="upsert", keys=("k",)))


def test_upserts_by_json_of_any_shape_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"silver.keys: 'value' is"):
        BatchPlan.of(pipeline("variant", mode="upsert", keys=("value",)))
