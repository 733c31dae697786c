"""Records that must have a schema."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from uuid import uuid4

import fastavro
import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.errors import ConfigError, ErrorCode
from rookery.proxy.filters.record_schema import RecordSchema
from rookery.records import recordcodec
from rookery.records.compression import ZSTD
from rookery.records.recordcodec import BatchSettings, Record
from rookery.testing.servedbroker import ask
from rookery.testing.servedproxy import ServedProxy
from rookery.wire.codec import request_frame
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.proxy.filters.conftest import read

COLUMNS = "id bigint, name string, tags array<string>"
AVRO = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
Make = Callable[..., RecordSchema]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def write(kind: str, schema: str, **options: object) -> RecordSchema:
        path = tmp_path / "schema"
        path.write_text(schema)
        return RecordSchema({"format": kind, "schema_file": str(path), **options})

    return write


def request(*topics: str, values: list[bytes | None]) -> ProduceRequest:
    records = [Record(None, value, (), 5) for value in values]
    batch = recordcodec.build(records, BatchSettings(codec=ZSTD))
    good = recordcodec.build([Record(None, b'{"id": 1}', (), 5)])
    data = [
        TopicProduceData(
            name=topic,
            partition_data=[PartitionProduceData(index=0, records=batch if at == 0 else good)],
        )
        for at, topic in enumerate(topics)
    ]
    return ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=data)


@pytest.mark.parametrize("version", [3, 7, 8, 9, 12])
def test_bad_records_are_named_and_other_partitions_are_served(
    server: str, topic: str, make: Make, version: int
) -> None:
    other = f"o-{uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": server})
    admin.create_topics([NewTopic(other, 1, 1)])[other].result(20)
    values = [b'{"id": 1, "name": "a", "x": 2}', None, b"no JSON", b'{"id": "x"}', b'{"name": "b"}']
    asked = request(topic, other, values=values)
    with ServedProxy(server, filters=[make("json", COLUMNS, required=["id"])]) as proxy:
        node = next(iter(proxy.proxy.clusters[0].nodes.values()))
        response = ask(node.text, PRODUCE, version, asked)

    rows = {row.name: row.partition_responses[0] for row in response.responses}
    assert rows[other].error_code is ErrorCode.NONE
    refused = rows[topic]
    assert refused.error_code is ErrorCode.INVALID_RECORD
    assert [row.name for row in response.responses] == [topic, other]
    if version >= 8:
        assert refused.error_message == "3 of 5 records do not have the schema"
        reasons = {row.batch_index: row.batch_index_error_message for row in refused.record_errors}
        assert set(reasons) == {2, 3, 4}
        assert reasons[4] == "id is null or missing"
        assert all(reasons.values())
    assert [message.value() for message in read(server, other, 1)] == [b'{"id": 1}']


def test_avro_values_of_clients_are_checked(server: str, topic: str, make: Make) -> None:
    sound = BytesIO()
    fastavro.schemaless_writer(sound, AVRO, {"id": 7})
    codes: list[int | None] = []

    def note(error: KafkaError | None, _message: Message) -> None:
        codes.append(error.code() if error else None)

    with ServedProxy(server, filters=[make("avro", json.dumps(AVRO))]) as proxy:
        producer = Producer({"bootstrap.servers": proxy.bootstrap})
        for value in (sound.getvalue(), b"\x80", None, b""):
            producer.produce(topic, value, b"k", on_delivery=note)
            assert producer.flush(20) == 0

    assert codes == [None, KafkaError.INVALID_RECORD, None, KafkaError.INVALID_RECORD]
    assert [message.value() for message in read(server, topic, 2)] == [sound.getvalue(), None]


def test_keys_can_be_checked_instead(server: str, topic: str, make: Make) -> None:
    codes: list[int | None] = []
    with ServedProxy(server, filters=[make("json", "id bigint", part="key")]) as proxy:
        producer = Producer({"bootstrap.servers": proxy.bootstrap})
        for key in (b'{"id": 1}', b"x"):
            producer.produce(
                topic,
                b"any",
                key,
                on_delivery=lambda error, _: codes.append(error.code() if error else None),
            )
            assert producer.flush(20) == 0

    assert codes == [None, KafkaError.INVALID_RECORD]


def test_one_way_request_with_a_bad_record_closes_the_connection(
    server: str, topic: str, make: Make
) -> None:
    asked = request(topic, values=[b"no JSON"])
    asked.acks = 0
    with (
        ServedProxy(server, filters=[make("json", COLUMNS)]) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), 20) as client,
    ):
        client.sendall(b"".join(request_frame(PRODUCE, 9, 1, "a", asked)))
        assert not client.recv(1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "format: must be one of json, json_schema, avro, protobuf"),
        ({"format": "json"}, "set the option schema_file"),
        ({"format": "json", "schema_file": "/nowhere"}, "schema_file: /nowhere"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RecordSchema(options)


def test_required_column_must_exist(make: Make) -> None:
    with pytest.raises(ConfigError, match="the schema has no column 'nothing'"):
        make("json", COLUMNS, required=["nothing"])


def test_records_are_checked_against_a_json_schema(server: str, topic: str, make: Make) -> None:
    schema = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
    values = [b'{"id": 1}', None, b"no JSON", b'{"id": "x"}']
    with ServedProxy(server, filters=[make("json_schema", schema)]) as proxy:
        node = next(iter(proxy.proxy.clusters[0].nodes.values()))
        refused = ask(node.text, PRODUCE, 9, request(topic, values=values))
        accepted = ask(node.text, PRODUCE, 9, request(topic, values=values[:2]))

    [row] = refused.responses[0].partition_responses
    assert row.error_code is ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in row.record_errors] == [2, 3]
    assert row.record_errors[1].batch_index_error_message == (
        '/id: the value is not of type "integer"'
    )
    assert accepted.responses[0].partition_responses[0].error_code is ErrorCode.NONE


def test_columns_of_a_json_schema_are_required_by_itself(make: Make) -> None:
    with pytest.raises(ConfigError, match="required"):
        make("json_schema", "{}", required=["id"])
