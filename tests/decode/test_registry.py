"""The registry's client against a server over HTTP; framed values by schema id."""

from __future__ import annotations

import io
import json
import pickle
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from rookery.decode.registry import RegistrySettings, SchemaRegistry, UnknownSchema
from rookery.decode.rows import to_list
from rookery.errors import ConfigError, Unavailable
from rookery.security.tls import ClientTls, KeyPair
from rookery.testing.certificates import Certificates
from rookery.testing.registry import RegistryServer
from tests.decode.samples import column, decoded, opened, reasons

FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
SECOND = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as made:
        yield made


def client(server: RegistryServer, **settings: Any) -> SchemaRegistry:
    return SchemaRegistry(RegistrySettings(server.url, backoff_ms=1, **settings))


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, schema_id) + out.getvalue()


def test_schema_ids_are_requested_once(server: RegistryServer) -> None:
    schema_id = server.register("s-value", json.dumps(FIRST))
    registry = client(server)
    for _ in range(3):
        assert json.loads(registry.schema(schema_id).text) == FIRST
    assert server.requests == [f"/schemas/ids/{schema_id}"]
    for _ in range(3):
        with pytest.raises(UnknownSchema, match="no schema 99"):
            registry.schema(99)
    assert len(server.requests) == 2


def test_subjects_are_found_by_latest_and_by_version(server: RegistryServer) -> None:
    server.register("a/b c", json.dumps(FIRST))
    server.register("a/b c", json.dumps(SECOND))
    registry = client(server)
    assert json.loads(registry.latest("a/b c").text) == SECOND
    assert registry.latest("a/b c").version == 2
    assert json.loads(registry.latest("a/b c", 1).text) == FIRST
    with pytest.raises(UnknownSchema, match="version 3 of subject"):
        registry.latest("a/b c", 3)
    with pytest.raises(UnknownSchema, match="subject 'none'"):
        registry.latest("none")


def test_failed_request_is_retried_and_then_unavailable(server: RegistryServer) -> None:
    schema_id = server.register("s", '"int"')
    server.failures = 2
    assert client(server).schema(schema_id).text == '"int"'
    server.failures = 99
    with pytest.raises(Unavailable, match="HTTP 503"):
        client(server, attempts=3).schema(schema_id)
    assert server.failures == 96


def test_unreachable_registry_is_unavailable_and_not_a_bad_row(server: RegistryServer) -> None:
    with RegistryServer() as gone:
        url = gone.url
    registry = SchemaRegistry(RegistrySettings(url, attempts=2, backoff_ms=1))
    decoder = opened("avro", schema='"int"', registry=registry)
    with pytest.raises(Unavailable, match="schema registry"):
        decoder.decode(column(b"\0\0\0\0\1x"))


def test_answers_are_bounded(server: RegistryServer) -> None:
    schema_id = server.register("s", json.dumps("x" * 5000))
    with pytest.raises(Unavailable, match="exceeds 1000 bytes"):
        client(server, max_response_bytes=1000).schema(schema_id)


@pytest.mark.parametrize("url", ["localhost:8081", "file:///etc/passwd", "ftp://x", ""])
def test_only_http_urls_are_accepted(url: str) -> None:
    with pytest.raises(ConfigError, match="schema registry"):
        SchemaRegistry(url)


def test_basic_authentication_is_sent() -> None:
    with RegistryServer("me", "secret") as server:
        schema_id = server.register("s", '"int"')
        assert client(server, username="me", password="secret").schema(schema_id).text == '"int"'  # noqa: S106
        with pytest.raises(ConfigError, match="check username and password"):
            client(server, username="me", password="other").schema(schema_id)  # noqa: S106
        assert len(server.requests) == 2
    assert "secret" not in repr(RegistrySettings("http://x", "me", "secret"))


def test_tls_certificate_is_verified(tmp_path: Path) -> None:
    files = Certificates.make(tmp_path, "localhost")
    with RegistryServer(own=KeyPair(str(files.server))) as server:
        schema_id = server.register("s", '"int"')
        trusting = client(server, tls=ClientTls(ca_file=str(files.ca)))
        assert trusting.schema(schema_id).text == '"int"'
        assert pickle.loads(pickle.dumps(trusting)).schema(schema_id).text == '"int"'
        with pytest.raises(Unavailable, match="certificate"):
            client(server, attempts=1).schema(schema_id)


def test_references_are_followed(server: RegistryServer) -> None:
    inner = {"type": "record", "name": "x.Inner", "fields": [{"name": "v", "type": "int"}]}
    server.register("inner", json.dumps(inner))
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "i", "type": "x.Inner"}]}
    used = [{"name": "x.Inner", "subject": "inner", "version": 1}]
    schema_id = server.register("outer", json.dumps(outer), "AVRO", used)
    decoder = opened("avro", registry=client(server), subject="outer")
    result = decoded(decoder, [struct.pack(">bI", 0, schema_id) + b"\x06"])
    assert result.values.to_pylist() == [{"i": {"v": 3}}]


def test_circular_references_are_refused(server: RegistryServer) -> None:
    server.register("s", '"int"', "AVRO", [{"name": "s", "subject": "s", "version": 1}])
    registry = client(server)
    with pytest.raises(UnknownSchema, match="circles"):
        registry.references(registry.latest("s"))


# ---- framed values


def test_rows_are_grouped_by_schema_and_keep_their_order(server: RegistryServer) -> None:
    first = server.register("s", json.dumps(FIRST))
    second = server.register("s", json.dumps(SECOND))
    decoder = opened("avro", registry=client(server), subject="s")
    values: list[bytes | None] = []
    for at in range(0, 300, 3):
        values += [
            framed(first, FIRST, {"id": at}),
            None,
            framed(second, SECOND, {"id": at + 2, "note": str(at)}),
        ]
    result = decoded(decoder, values)
    assert result.bad == ()
    rows = to_list(result.values)
    assert [row and row["id"] for row in rows] == [None if at % 3 == 1 else at for at in range(300)]
    assert rows[2]["note"] == "0"
    assert len([path for path in server.requests if "ids" in path]) == 2


def test_bad_frames_and_unknown_ids_are_bad_rows(server: RegistryServer) -> None:
    first = server.register("s", json.dumps(FIRST))
    other = server.register("p", "text", "PROTOBUF")
    broken = server.register("b", "{}")
    decoder = opened("avro", registry=client(server), subject="s")
    values = [b"", b"\0\0", b"\1" + bytes(9), struct.pack(">bI", 0, 77) + b"x",
              struct.pack(">bI", 0, other), struct.pack(">bI", 0, broken),
              struct.pack(">bI", 0, first) + b"\xff", framed(first, FIRST, {"id": 5})]  # fmt: skip
    result = decoded(decoder, values)
    assert [(bad.row, bad.schema_id) for bad in result.bad] == [
        (0, None), (1, None), (2, None), (3, 77), (4, other), (5, broken), (6, first),
    ]  # fmt: skip
    assert "no schema id: the value begins with nothing" in reasons(result)[0]
    assert "the registry has no schema 77" in reasons(result)[3]
    assert "is PROTOBUF, not AVRO" in reasons(result)[4]
    assert result.values[7].as_py() == {"id": 5}


def test_a_password_in_the_address_is_used_and_never_shown() -> None:
    with RegistryServer(username="me", password="p@ss word") as server:  # noqa: S106 (a test's)
        schema_id = server.register("s", json.dumps(FIRST))
        url = server.url.replace("://", "://me:p%40ss%20word@")
        settings = RegistrySettings(url, attempts=1)
        assert json.loads(SchemaRegistry(settings).schema(schema_id).text) == FIRST
        assert (settings.url, settings.username) == (server.url, "me")
        assert "p@ss" not in repr(settings)
        wrong = RegistrySettings(server.url.replace("://", "://me:geheim@"), attempts=1)
        with pytest.raises(ConfigError, match="check username and password") as refused:
            SchemaRegistry(wrong).schema(schema_id)
    with pytest.raises(Unavailable) as gone:
        SchemaRegistry(wrong).schema(schema_id)
    with pytest.raises(ConfigError, match="write http://host") as other:
        SchemaRegistry("ftp://me:geheim@host")
    for error in (refused, gone, other):
        assert "geheim" not in str(error.value)
    with pytest.raises(ConfigError, match="not a URL"):
        RegistrySettings("http://[me:geheim@host")


def test_random_bytes_do_not_request_unlimited_ids(server: RegistryServer) -> None:
    first = server.register("s", json.dumps(FIRST))
    decoder = opened("avro", registry=client(server), subject="s")
    noise = [struct.pack(">bI", 0, 1000 + at) for at in range(500)]
    good = [framed(first, FIRST, {"id": at}) for at in range(5)]
    result = decoded(decoder, [*noise, *good])
    assert len(result.bad) == 500
    assert result.values.drop_null().to_pylist() == [{"id": at} for at in range(5)]
    assert len(server.requests) < 50
    assert "too many unknown ids" in reasons(result)[499]


def test_framed_json_is_decoded(server: RegistryServer) -> None:
    decoder = opened("json", schema="id long", registry=client(server))
    result = decoded(decoder, [b'\0\0\0\0\x07{"id": 3}', b'{"id": 3}', b"\0\0\0\0\x07{"])
    assert result.values[0].as_py() == {"id": 3}
    assert [(bad.row, bad.schema_id) for bad in result.bad] == [(1, None), (2, 7)]


def test_missing_subject_is_a_config_error(server: RegistryServer) -> None:
    for settings in ({}, {"subject": "none"}):
        for name in ("avro", "protobuf"):
            with pytest.raises(ConfigError, match=f"decoder {name}"):
                opened(name, registry=client(server), **settings)


CONFLUENT = """
import json, sys
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
client = SchemaRegistryClient({"url": sys.argv[1]})
context = SerializationContext("orders", MessageField.VALUE)
for schema, value in json.load(sys.stdin):
    print(AvroSerializer(client, json.dumps(schema))(value, context).hex())
"""


def test_values_of_the_confluent_serializer_are_decoded(server: RegistryServer) -> None:
    pytest.importorskip("authlib", reason="confluent-kafka's schema registry client needs it")
    pytest.importorskip("httpx", reason="confluent-kafka's schema registry client needs it")
    work = json.dumps([[FIRST, {"id": 1}], [SECOND, {"id": 2**40, "note": "n"}]])
    # In a process of its own: it warns, and warnings are errors here.
    done = subprocess.run(
        [sys.executable, "-c", CONFLUENT, server.url],
        input=work, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    values = [bytes.fromhex(line) for line in done.stdout.split()]
    decoder = opened("avro", registry=client(server), subject="orders-value")
    result = decoded(decoder, values)
    assert result.values.to_pylist() == [{"id": 1, "note": None}, {"id": 2**40, "note": "n"}]
