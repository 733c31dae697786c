"""Headers that the proxy adds to records."""

from __future__ import annotations

from uuid import uuid4

import pytest
from confluent_kafka import Producer

from rookery.errors import ConfigError
from rookery.proxy.filters.headers import RecordHeaders
from rookery.testing.servedproxy import ServedProxy
from tests.kafkapython import KafkaProducer
from tests.proxy.filters.conftest import read


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_get_headers_and_lose_forged_ones(server: str, topic: str, codec: str) -> None:
    options = {"headers": {"who": "$principal at $host", "by": "$client_id", "price": "$$5"}}
    with ServedProxy(server, filters=[RecordHeaders(options)]) as proxy:
        producer = Producer(
            {
                "bootstrap.servers": proxy.bootstrap,
                "client.id": "wren",
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 100,
            }
        )
        for number in range(10):
            headers: list[tuple[str, str | bytes | None]] = [
                ("who", b"User:admin"),
                ("own", b"%d" % number),
                ("own", None),
            ]
            producer.produce(topic, b"value", b"key", headers=headers)
        producer.produce(topic, None, b"key")
        assert producer.flush(20) == 0
    stored = read(server, topic, 11)

    added = [("who", b"User:ANONYMOUS at 127.0.0.1"), ("by", b"wren"), ("price", b"$5")]
    for number, message in enumerate(stored[:10]):
        assert message.headers() == [("own", b"%d" % number), ("own", None), *added]
        assert (message.key(), message.value()) == (b"key", b"value")
    assert stored[10].value() is None
    assert stored[10].headers() == added


def test_transactions_and_other_clients_pass(server: str, topic: str) -> None:
    with ServedProxy(server, filters=[RecordHeaders({"headers": {"a": "b"}})]) as proxy:
        producer = Producer(
            {"bootstrap.servers": proxy.bootstrap, "transactional.id": f"t-{uuid4().hex}"}
        )
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce(topic, b"committed")
        producer.commit_transaction(20)
        by_python = KafkaProducer(bootstrap_servers=proxy.bootstrap, compression_type="gzip")
        by_python.send(topic, b"python", headers=[("x", b"y")])
        by_python.flush(20)
        by_python.close()
        seen = read(proxy.bootstrap, topic, 2)

    assert [message.value() for message in seen] == [b"committed", b"python"]
    assert [message.headers() for message in seen] == [[("a", b"b")], [("x", b"y"), ("a", b"b")]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "set the option headers"),
        ({"headers": {"a": 1}}, "a must be a text"),
        ({"headers": {"a": "$password"}}, r"can contain \$principal"),
        ({"headers": {"a": "$"}}, r"\$\$ for a dollar"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RecordHeaders(options)
