"""Decoders as column functions, in a Spark session: batch and stream, good rows and bad."""

from __future__ import annotations

import datetime
import io
import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest

from rookery.decode.rows import to_list
from rookery.errors import ConfigError
from rookery.spark.functions import as_storable, decode, storable
from rookery.testing.registry import RegistryServer
from tests.decode import test_protobuf

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


def rows(spark: SparkSession, values: list[bytes | None], *args: Any, **settings: Any) -> list[Row]:
    frame = spark.createDataFrame([(value,) for value in values], "value binary").coalesce(1)
    return [
        row.it for row in frame.select(decode("value", *args, **settings).alias("it")).collect()
    ]


def test_json_is_decoded_with_a_ddl_schema(spark: SparkSession) -> None:
    schema = "id long, at timestamp, tags array<string>, more map<string,decimal(5,2)>"
    good = b'{"id": 1, "at": "2026-11-15T10:00:00Z", "tags": ["a"], "more": {"k": 1.5}}'
    frame = spark.createDataFrame([(good,), (b"{",), (None,)], "value binary").coalesce(1)
    decoded = frame.select(decode(frame.value, "json", schema=schema).alias("it"))
    kinds = {
        field.name: field.dataType.simpleString() for field in decoded.select("it.value.*").schema
    }
    assert kinds == {
        "id": "bigint",
        "at": "timestamp",
        "tags": "array<string>",
        "more": "map<string,decimal(5,2)>",
    }
    first, second, third = decoded.collect()
    assert first.it["_error"] is None
    assert first.it.value.id == 1
    assert str(first.it.value.more["k"]) == "1.50"
    assert second.it.value is None
    assert "not JSON" in second.it["_error"]
    assert third.it.value is None
    assert third.it["_error"] is None
    at = decoded.where("it.value.at = timestamp'2026-11-15 10:00:00Z'").count()
    assert at == 1


def test_avro_schema_version_is_fixed_at_analysis(spark: SparkSession) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    wider = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}]}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"id": 7})
    with RegistryServer() as server:
        schema_id = server.register("s", json.dumps(schema))
        value = struct.pack(">bI", 0, schema_id) + out.getvalue()
        frame = spark.createDataFrame([(value,), (b"\0\0\0\0\x63x",)], "value binary").coalesce(1)
        decoded = frame.select(
            decode("value", "avro", registry=server.url, subject="s").alias("it")
        )
        server.register("s", json.dumps(wider))
        first, second = (row.it for row in decoded.collect())
    assert first.value.id == 7
    assert "no schema 99" in second["_error"]


def test_functions_and_text_are_decoded(spark: SparkSession) -> None:
    def lengths(values: pa.Array[Any]) -> pa.Array[Any]:
        return pa.array([len(value) for value in to_list(values)], pa.uint32())

    assert [row.value for row in rows(spark, [b"abc", None], "python", function=lengths)] == [
        3,
        None,
    ]
    assert [row.value for row in rows(spark, ["é".encode(), b"\xff"], "utf8")] == ["é", None]


def test_values_are_decoded_in_a_stream(
    spark: SparkSession, tmp_path: Path, checkpoint: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.txt").write_text('{"id": 1}\n{"id": "x"}\n{"id": 3}\n')
    lines = spark.readStream.text(str(tmp_path / "in")).selectExpr("cast(value as binary) value")
    decoded = lines.select(decode("value", "json", schema="id long").alias("it"))
    query = (
        decoded.selectExpr("it.value.id", "it._error as error")
        .writeStream.format("memory")
        .queryName("decoded_ids")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    rows = spark.table("decoded_ids").collect()
    assert sorted((row.id or 0, row.error is not None) for row in rows) == [
        (0, True), (1, False), (3, False),
    ]  # fmt: skip


def test_settings_are_checked_at_analysis() -> None:
    with pytest.raises(ConfigError, match="schema"):
        decode("value", "json")
    with pytest.raises(ConfigError, match="choose one of"):
        decode("value", "nothing")


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (pa.uint64(), 2**64 - 1, 2**64 - 1),
        (pa.binary(2), b"ab", b"ab"),
        (pa.time32("ms"), 5, 5000),
        (pa.list_(pa.struct([("t", pa.time64("us"))])), [{"t": 5}], [{"t": 5}]),
        (pa.list_(pa.struct([("t", pa.time32("ms"))])), [{"t": 5}, None], [{"t": 5000}, None]),
        (pa.list_(pa.time32("ms")), [5, None], [5000, None]),
        (pa.large_list(pa.large_list(pa.time32("s"))), [[5], None], [[5_000_000], None]),
        (pa.map_(pa.string(), pa.time32("ms")), [("a", 5), ("b", None)],
         [("a", 5000), ("b", None)]),
        (pa.null(), None, None),
    ],
)  # fmt: skip
def test_types_unsupported_by_spark_become_similar_ones(
    kind: pa.DataType, value: Any, wanted: Any
) -> None:
    values = pa.array([value, None, value], kind)
    stored = as_storable(values, storable(kind))
    assert stored.type == storable(kind)
    assert stored.to_pylist() == [wanted, None, wanted]
    assert as_storable(values[1:], storable(kind)).to_pylist() == [None, wanted]


def test_nanoseconds_in_lists_are_truncated() -> None:
    values = pa.array([[1_001]], pa.list_(pa.timestamp("ns")))
    stored = as_storable(values, storable(values.type))
    assert to_list(stored.cast(pa.list_(pa.int64()))) == [[1]]


def test_lists_and_maps_of_avro_times_are_converted(spark: SparkSession) -> None:
    time = {"type": "int", "logicalType": "time-millis"}
    fields = [
        {"name": "many", "type": {"type": "array", "items": time}},
        {"name": "named", "type": {"type": "map", "values": time}},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    out = io.BytesIO()
    noon = datetime.time(12)
    fastavro.schemaless_writer(
        out, fastavro.parse_schema(schema), {"many": [noon], "named": {"a": noon}}
    )
    [row] = rows(spark, [out.getvalue()], "avro", schema=json.dumps(schema))
    assert (row.value.many, row.value.named) == ([43_200_000_000], {"a": 43_200_000_000})


def test_protobuf_is_decoded_by_its_descriptors(spark: SparkSession) -> None:
    made = test_protobuf.file()
    order = test_protobuf.message_class(made)(id=7, tags=["a", "b"])
    order.at.FromDatetime(datetime.datetime(2026, 11, 15, tzinfo=datetime.UTC))
    values = [order.SerializeToString(), b"\xff", None]
    schema = test_protobuf.described(made)
    good, bad, empty = rows(spark, values, "protobuf", schema=schema, message="shop.Order")
    assert (good.value.id, good.value.tags, good["_error"]) == (7, ["a", "b"], None)
    assert good.value.at.year == 2026
    assert (bad.value, empty.value, empty["_error"]) == (None, None, None)
    assert bad["_error"]


def test_json_of_any_shape_is_a_variant(spark: SparkSession) -> None:
    values = [b'{"a": [1, 2.5]}', b"7", b"{", None, b'{"a": 1, "a": 2}', b"\xff"]
    frame = spark.createDataFrame([(value,) for value in values], "value binary").coalesce(1)
    decoded = frame.select(decode("value", "json", schema="variant").alias("it"))
    assert decoded.select("it.value").schema["value"].dataType.simpleString() == "variant"
    rows = decoded.selectExpr(
        "variant_get(it.value, '$.a[1]', 'double') AS a",
        "to_json(it.value) AS text",
        "it._error AS why",
    ).collect()
    assert [(row.a, row.text) for row in rows] == [
        (2.5, '{"a":[1,2.5]}'), (None, "7"), (None, None), (None, None), (None, None), (None, None),
    ]  # fmt: skip
    assert [row.why for row in rows[:2]] == [None, None]
    assert "not JSON" in rows[2].why
    assert rows[3].why is None
    assert "given twice" in rows[4].why
    assert "not UTF-8" in rows[5].why
