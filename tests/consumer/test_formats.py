"""Avro and Protobuf with a schema registry, Arrow, and functions: streams of typed rows."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import fastavro
import pyarrow as pa
import pyarrow.compute
import pytest

import rookery
from rookery.consumer.faults import Undecodable
from rookery.consumer.settings import DecoderSpec
from rookery.decode.open import open_decoder
from rookery.decode.port import DecoderSettings
from rookery.decode.registry import RegistrySettings, SchemaRegistry
from rookery.errors import Unavailable
from rookery.testing.kafkalogs import NOON, Logs, pack_rows
from rookery.testing.registry import RegistryServer
from tests.decode.test_protobuf import Order, file, framed, registered

Column: TypeAlias = "pa.Array[Any]"
SUBJECT = "orders-value"
OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
AT = {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {**AT, "default": None}]}
PARTITIONS = 2


@dataclass(frozen=True)
class Sample:
    """Values of one format: all may be decoded but the fourth."""

    decoder: DecoderSpec
    values: list[bytes | None]
    rows: list[Any]
    reason: str


def a_registry(server: RegistryServer) -> SchemaRegistry:
    return SchemaRegistry(RegistrySettings(server.url, attempts=1, backoff_ms=1))


def avro_value(schema_id: int, schema: Any, **fields: Any) -> bytes:
    out = io.BytesIO()
    out.write(struct.pack(">bI", 0, schema_id))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), fields)
    return out.getvalue()


def avro(server: RegistryServer) -> Sample:
    """Two versions of a schema, of which readers see the later one; and an unknown one."""
    old = server.register(SUBJECT, json.dumps(OLD))
    new = server.register(SUBJECT, json.dumps(NEW))
    noon = datetime.fromtimestamp(NOON / 1000, UTC)
    values = [
        avro_value(old, OLD, id=1),
        avro_value(new, NEW, id=2, at=noon),
        None,
        avro_value(77, OLD, id=4),
        avro_value(old, OLD, id=5),
    ]
    decoder = open_decoder("avro", DecoderSettings(registry=a_registry(server), subject=SUBJECT))
    rows = [{"id": 1, "at": None}, {"id": 2, "at": noon}, None, None, {"id": 5, "at": None}]
    return Sample(decoder, values, rows, "77")


def protobuf(server: RegistryServer) -> Sample:
    """Messages after the index of their type in the file, and a truncated one."""
    schema_id = registered(server, file())
    values = [
        framed(schema_id, b"\x02\x02", Order(id=1, name="a")),
        framed(schema_id, b"\x02\x02", Order(id=2, name="b")),
        None,
        framed(schema_id, b"\x02\x02", Order(id=4, name="d"))[:-1],
        framed(schema_id, b"\x02\x02", Order(id=5, name="e")),
    ]
    settings = DecoderSettings(registry=a_registry(server), subject=SUBJECT, message="shop.Order")
    rows = [(1, "a"), (2, "b"), None, None, (5, "e")]
    return Sample(open_decoder("protobuf", settings), values, rows, "not a shop.Order")


def ipc(_: RegistryServer) -> Sample:
    """Streams of one row; and bytes that are none."""

    def stream(number: int) -> bytes:
        sink = pa.BufferOutputStream()
        batch = pa.record_batch({"id": pa.array([number], pa.int32())})
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return bytes(sink.getvalue().to_pybytes())

    decoder = open_decoder("arrow", DecoderSettings(schema="id long"))
    values = [stream(1), stream(2), None, b"junk", stream(5)]
    return Sample(decoder, values, [{"id": 1}, {"id": 2}, None, None, {"id": 5}], "not an Arrow")


def function(_: RegistryServer) -> Sample:
    """A function that is called with a whole column, and raises for one row."""

    def parsed(column: Column) -> Column:
        compute: Any = pa.compute
        numbers: Column = compute.cast(column.cast(pa.string()), pa.int64())
        return numbers

    return Sample(parsed, [b"1", b"2", None, b"four", b"5"], [1, 2, None, None, 5], "four")


SAMPLES = [avro, protobuf, ipc, function]


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as made:
        yield made


@pytest.fixture(params=SAMPLES, ids=lambda kind: kind.__name__)
def sample(request: pytest.FixtureRequest, server: RegistryServer) -> Sample:
    made: Sample = request.param(server)
    return made


def sent(topics: Logs, values: list[bytes | None], times: list[int] | None = None) -> str:
    """Write values to partitions in turns, so that they are merged in their order."""
    topic = topics.create("formats", PARTITIONS)
    for partition in range(PARTITIONS):
        some = values[partition::PARTITIONS]
        moments = (times or list(range(len(values))))[partition::PARTITIONS]
        columns: dict[str, Column] = {
            "value": pa.array(some, pa.binary()),
            "timestamp": pa.array([NOON + moment for moment in moments], pa.timestamp("ms", "UTC")),
        }
        topics.append(topic, {partition: pack_rows(pa.record_batch(columns))})
    return topic


def plain(column: Any) -> list[Any]:
    """Return rows; of messages only what the samples set."""
    rows = column.to_pylist()
    if pa.types.is_struct(column.type) and "name" in [field.name for field in column.type]:
        return [None if row is None else (row["id"], row["name"]) for row in rows]
    return list(rows)


def test_undecodable_value_is_null(topics: Logs, sample: Sample) -> None:
    topic = sent(topics, sample.values)

    whole = rookery.read(
        topics.bootstrap, topic, value=sample.decoder, on_decode_error="null"
    ).to_table()
    pieces = rookery.replay(
        topics.bootstrap, topic, value=sample.decoder, on_decode_error="null", batch_rows=2
    )

    assert plain(whole["value"]) == sample.rows
    assert [row for batch in pieces for row in plain(batch["value"])] == sample.rows


def test_undecodable_value_is_put_aside(topics: Logs, sample: Sample) -> None:
    topic = sent(topics, sample.values)

    with rookery.replay(
        topics.bootstrap,
        topic,
        value=sample.decoder,
        on_decode_error="side",
        columns=["value", "raw_value"],
    ) as stream:
        table = stream.to_table()
        [rejected] = pa.Table.from_batches(stream.take_side()).to_pylist()

    assert plain(table["value"]) == [row for n, row in enumerate(sample.rows) if n != 3]
    assert table["raw_value"].to_pylist() == [v for n, v in enumerate(sample.values) if n != 3]
    assert (rejected["partition"], rejected["offset"]) == (1, 1)
    assert rejected["value"] == sample.values[3]
    assert sample.reason in rejected["reason"]


def test_undecodable_value_is_raised_after_the_rows_before_it(topics: Logs, sample: Sample) -> None:
    topic = sent(topics, sample.values)

    with rookery.read(topics.bootstrap, topic, value=sample.decoder) as stream:
        before = next(stream)
        checkpoint = stream.checkpoint
        with pytest.raises(Undecodable, match=sample.reason):
            next(stream)
        with pytest.raises(Undecodable, match=sample.reason) as caught:
            next(stream)  # nothing is passed over
    rest = rookery.read(
        topics.bootstrap, topic, value=sample.decoder, start=checkpoint, on_decode_error="null"
    ).to_table()

    assert plain(before["value"]) == sample.rows[:3]
    assert (caught.value.partition, caught.value.offset) == (1, 1)
    assert plain(rest["value"]) == sample.rows[3:]


def test_rows_wait_for_an_unreachable_registry(topics: Logs, server: RegistryServer) -> None:
    made = avro(server)
    topic = sent(topics, made.values)

    with rookery.read(
        topics.bootstrap, topic, value=made.decoder, on_decode_error="null"
    ) as stream:
        server.failures = 1_000_000
        with pytest.raises(Unavailable):
            next(stream)
        server.failures = 0
        rows = plain(stream.to_table()["value"])

    assert rows == made.rows


def test_rows_with_event_times_in_values_wait_for_an_unreachable_registry(
    topics: Logs, server: RegistryServer
) -> None:
    made = avro(server)
    topic = sent(topics, made.values)

    with rookery.read(
        topics.bootstrap,
        topic,
        value=made.decoder,
        event_time="value.id",
        on_decode_error="null",
    ) as stream:
        server.failures = 1_000_000
        with pytest.raises(Unavailable):
            next(stream)
        server.failures = 0
        rows = stream.to_table()

    assert rows.num_rows == len(made.values)


def test_rows_are_ordered_by_a_field_of_their_value(topics: Logs, server: RegistryServer) -> None:
    made = avro(server)
    new = server.register(SUBJECT, json.dumps(NEW))
    moments = [datetime.fromtimestamp(NOON / 1000, UTC) + timedelta(hours=n) for n in (1, 0, 3, 2)]
    values: list[bytes | None] = [
        avro_value(new, NEW, id=n, at=moment) for n, moment in enumerate(moments)
    ]
    topic = sent(topics, values, times=[0, 0, 0, 0])

    table = rookery.read(
        topics.bootstrap, topic, value=made.decoder, event_time="value.at"
    ).to_table()

    assert [row["id"] for row in plain(table["value"])] == [1, 0, 3, 2]
