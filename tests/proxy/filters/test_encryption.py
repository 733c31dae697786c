"""Encrypted values, as clients of the proxy and of its upstream see them."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.errors import ConfigError, ErrorCode
from rookery.proxy.edits.envelope import MAGIC
from rookery.proxy.filters.deny import Deny
from rookery.proxy.filters.encryption import Encryption
from rookery.records import recordcodec
from rookery.records.recordcodec import Record
from rookery.testing.servedbroker import ask
from rookery.testing.servedproxy import ServedProxy
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.kafkapython import KafkaConsumer
from tests.proxy.filters.conftest import Keys, read, read_error


def errors_of(bootstrap: str, topic: str, *values: bytes | None, **settings: object) -> list[int]:
    """Produce values under their numbers as keys; return the codes of the errors."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100, **settings})
    codes: list[int] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            codes.append(error.code())

    for number, value in enumerate(values):
        producer.produce(topic, value, b"%d" % number, headers={"h": b"x"}, on_delivery=note)
    assert producer.flush(20) == 0
    return codes


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_brokers_store_ciphertext_and_consumers_get_values(
    server: str, topic: str, keys: Keys, codec: str
) -> None:
    values = [b"secret-%d" % number * 20 for number in range(50)] + [None, b""]
    with ServedProxy(server, filters=[Encryption({"keys_file": str(keys("k", k=1))})]) as proxy:
        settings = {"compression.type": codec, "enable.idempotence": True}
        assert not errors_of(proxy.bootstrap, topic, *values, **settings)
        seen = read(proxy.bootstrap, topic, len(values))
        consumer = KafkaConsumer(
            topic, bootstrap_servers=proxy.bootstrap, auto_offset_reset="earliest", group_id=None
        )
        by_python = [next(consumer).value for _ in values]
        consumer.close()
    stored = read(server, topic, len(values))

    assert [message.value() for message in seen] == values
    assert by_python == values
    for row in (seen, stored):
        assert [message.key() for message in row] == [b"%d" % n for n in range(len(values))]
        assert [message.offset() for message in row] == [*range(len(values))]
        assert all(message.headers() == [("h", b"x")] for message in row)
    assert [message.timestamp() for message in seen] == [each.timestamp() for each in stored]
    assert stored[50].value() is None
    assert all((each.value() or b"").startswith(MAGIC) for each in [*stored[:50], stored[51]])
    assert not any(b"secret" in (message.value() or b"") for message in stored)


def test_transactions_pass(server: str, topic: str, keys: Keys) -> None:
    with ServedProxy(server, filters=[Encryption({"keys_file": str(keys("k", k=1))})]) as proxy:
        producer = Producer(
            {"bootstrap.servers": proxy.bootstrap, "transactional.id": f"t-{uuid4().hex}"}
        )
        producer.init_transactions(20)
        for ends in ("abort", "commit"):
            producer.begin_transaction()
            for number in range(10):
                producer.produce(topic, f"{ends}-{number}")
            assert producer.flush(20) == 0
            (producer.abort_transaction if ends == "abort" else producer.commit_transaction)(20)
        seen = read(proxy.bootstrap, topic, 10)

    assert [message.value() for message in seen] == [b"commit-%d" % n for n in range(10)]


def test_named_fields_are_encrypted_and_restored_byte_for_byte(
    server: str, topic: str, keys: Keys
) -> None:
    value = b'{ "id": 7, "card": {"number": "4111", "cvc": 1.10}, "list": [{"pin": 1}] }'
    options = {
        "keys_file": str(keys("k", k=1)),
        "fields": ["card.number", "list.pin", "none"],
        "topics": ["t-.*"],
    }
    with ServedProxy(server, filters=[Encryption(options)]) as proxy:
        assert not errors_of(proxy.bootstrap, topic, value, None, **{"compression.type": "gzip"})
        seen = [message.value() for message in read(proxy.bootstrap, topic, 2)]
        codes = errors_of(proxy.bootstrap, topic, b"{}", b"no JSON: 4111")
    stored = read(server, topic, 2)

    assert seen == [value, None]
    assert codes == [KafkaError.INVALID_RECORD] * 2
    kept = json.loads(stored[0].value() or b"")
    assert kept["id"] == 7
    assert kept["card"]["cvc"] == 1.10
    assert str(kept["card"]["number"]).startswith("rookery-encrypted:")
    assert str(kept["list"][0]["pin"]).startswith("rookery-encrypted:")


def test_topics_that_are_not_chosen_and_values_produced_past_the_proxy_pass(
    server: str, topic: str, keys: Keys
) -> None:
    errors_of(server, topic, b"direct")
    path = str(keys("k", k=1))
    with ServedProxy(server, filters=[Encryption({"keys_file": path})]) as proxy:
        assert not errors_of(proxy.bootstrap, topic, b"sealed")
        assert [m.value() for m in read(proxy.bootstrap, topic, 2)] == [b"direct", b"sealed"]
    with ServedProxy(server, filters=[Encryption({"keys_file": path, "topics": ["x"]})]) as proxy:
        assert not errors_of(proxy.bootstrap, topic, b"plain")
    assert read(server, topic, 3)[2].value() == b"plain"


def test_sealed_value_is_not_opened_twice(server: str, topic: str, keys: Keys) -> None:
    with ServedProxy(server, filters=[Encryption({"keys_file": str(keys("k", k=1))})]) as proxy:
        errors_of(proxy.bootstrap, topic, b"once")
        sealed = read(server, topic, 1)[0].value()
        errors_of(proxy.bootstrap, topic, sealed)

        assert [m.value() for m in read(proxy.bootstrap, topic, 2)] == [b"once", sealed]


def test_keys_are_rotated_while_the_proxy_runs(server: str, topic: str, keys: Keys) -> None:
    encryption = Encryption({"keys_file": str(keys("old", old=1))})
    with ServedProxy(server, filters=[encryption]) as proxy:
        assert not errors_of(proxy.bootstrap, topic, b"first")
        keys("new", old=1, new=2)
        encryption._looked_ms = 0
        assert not errors_of(proxy.bootstrap, topic, b"second")
        assert [m.value() for m in read(proxy.bootstrap, topic, 2)] == [b"first", b"second"]
    stored = [message.value() or b"" for message in read(server, topic, 2)]

    assert [value[5:8] for value in stored] == [b"old", b"new"]


@pytest.mark.parametrize("change", ["missing key", "wrong key", "changed byte", "moved", "cut"])
def test_value_that_cannot_be_decrypted_is_an_error(
    server: str, topic: str, keys: Keys, change: str
) -> None:
    with ServedProxy(server, filters=[Encryption({"keys_file": str(keys("k", k=1))})]) as proxy:
        errors_of(proxy.bootstrap, topic, b"secret")
    other = f"o-{uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": server})
    admin.create_topics([NewTopic(other, 1, 1)])[other].result(20)
    sealed = read(server, topic, 1)[0].value() or b""
    path = keys("k", k=1)
    if change == "missing key":
        path = keys("x", x=1)
    elif change == "wrong key":
        path = keys("k", k=2)
    elif change == "changed byte":
        sealed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    elif change == "cut":
        sealed = sealed[:20]
    producer = Producer({"bootstrap.servers": server})
    producer.produce(other, sealed, b"1" if change == "moved" else b"0")
    assert producer.flush(20) == 0

    with ServedProxy(server, filters=[Encryption({"keys_file": str(path)})]) as proxy:
        error = read_error(proxy.bootstrap, other)

    assert error.code() == KafkaError.INVALID_MSG


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "set either keys_file or key_service"),
        ({"key_service": "vault"}, "there is no key service 'vault'"),
        ({"keys_file": "/nowhere"}, "/nowhere"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Encryption(options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "add a table"),
        ('[keys]\nk = "x"', "32 bytes in base64"),
        (f'[keys]\nk = "{"A" * 43}="', "set active"),
    ],
)
def test_invalid_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "keys.toml"
    path.touch(mode=0o600)
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        Encryption({"keys_file": str(path)})

    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        Encryption({"keys_file": str(path)})


def test_half_of_a_denied_request_is_encrypted(server: str, topic: str, keys: Keys) -> None:
    denied = f"secret-{uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": server})
    admin.create_topics([NewTopic(denied, 1, 1)])[denied].result(20)
    batch = recordcodec.build([Record(None, b"in clear")])
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(
                name=name, partition_data=[PartitionProduceData(index=0, records=batch)]
            )
            for name in (denied, topic)
        ],
    )
    filters = [Deny({"topics": ["secret-.*"]}), Encryption({"keys_file": str(keys("k", k=1))})]
    with ServedProxy(server, filters=filters) as proxy:
        node = next(iter(proxy.proxy.clusters[0].nodes.values()))
        response = ask(node.text, PRODUCE, 9, request)

    codes = {row.name: row.partition_responses[0].error_code for row in response.responses}
    assert codes == {denied: ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic: ErrorCode.NONE}
    assert (read(server, topic, 1)[0].value() or b"").startswith(MAGIC)
