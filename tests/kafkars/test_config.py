"""librdkafka's words, and those that are not taken."""

from __future__ import annotations

import pytest

from rookery.client.librdkafka import client_settings
from rookery.errors import ConfigError
from rookery.kafkars import ConsumerManager, SourceTopic
from rookery.testing.kafka import KafkaServer
from rookery.testing.kafkalogs import NOON, Logs, rows

PLAIN = {"bootstrap.servers": "127.0.0.1:9092"}
SASL = {**PLAIN, "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}


def test_plain() -> None:
    settings = client_settings({**PLAIN, "client.id": "me", "group.id": "us"})

    assert (settings.bootstrap, settings.client_id) == ("127.0.0.1:9092", "me")
    assert (settings.tls, settings.sasl) == (None, None)


def test_everything() -> None:
    settings = client_settings(
        {
            **SASL,
            "sasl.username": "alice",
            "sasl.password": "secret",
            "ssl.ca.location": "/ca.pem",
            "ssl.certificate.location": "/own.pem",
            "ssl.key.location": "/own.key",
            "ssl.key.password": "open",
            "ssl.endpoint.identification.algorithm": "none",
        }
    )

    assert settings.tls is not None
    assert settings.tls.own is not None
    assert (settings.tls.ca_file, settings.tls.check_hostname) == ("/ca.pem", False)
    assert (settings.tls.own.certificate_file, settings.tls.own.key_file) == (
        "/own.pem",
        "/own.key",
    )
    assert settings.sasl is not None
    assert (settings.sasl.mechanism, settings.sasl.username) == ("SCRAM-SHA-512", "alice")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "bootstrap.servers"),
        ({**PLAIN, "enable.auto.commit": "true"}, "enable.auto.commit"),
        ({**PLAIN, "auto.offset.reset": "latest", "fetch.min.bytes": "1"}, "fetch.min.bytes"),
        ({**PLAIN, "security.protocol": "tls"}, "security.protocol"),
        ({**SASL, "sasl.username": "alice"}, "sasl.password"),
        ({**PLAIN, "security.protocol": "ssl", "ssl.key.location": "/k"}, "ssl.certificate"),
        (
            {**PLAIN, "security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "x"},
            "ssl.endpoint.identification.algorithm",
        ),
    ],
)
def test_what_is_refused_by_name(config: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        client_settings(config)


@pytest.mark.parametrize(
    ("config", "sources", "batch_size", "words"),
    [
        ({**PLAIN, "isolation.level": "dirty"}, [SourceTopic("t")], 1, "isolation.level"),
        (PLAIN, [SourceTopic("t")], 0, "batch_size"),
        (PLAIN, [SourceTopic.from_committed("t")], 1, "group.id"),
        ({**PLAIN, "max.poll.records": "1"}, [SourceTopic("t")], 1, "max.poll.records"),
    ],
)
def test_what_a_manager_refuses(
    config: dict[str, str], sources: list[SourceTopic], batch_size: int, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        ConsumerManager(config, sources, None, batch_size)


@pytest.mark.parametrize(
    ("policy", "time_ms"),
    [("newest", None), ("relative_time", None), ("earliest", 5), ("absolute_time", -1)],
)
def test_what_a_topic_refuses(policy: str, time_ms: int | None) -> None:
    with pytest.raises(ConfigError, match=policy if policy == "newest" else "time_ms"):
        SourceTopic("t", policy, time_ms)


def test_tls_and_a_login(kafka_secure: KafkaServer) -> None:
    with Logs(kafka_secure.bootstrap) as logs:
        topic = logs.create("secured", 2)
        logs.write(topic, 0, rows([NOON + n for n in range(10)]))
    config = {
        "bootstrap.servers": kafka_secure.address("SASL_SSL"),
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "admin",
        "sasl.password": "admin-secret",
        "ssl.ca.location": str(kafka_secure.certificates.ca),
    }
    with ConsumerManager(config, [SourceTopic.from_earliest(topic)]) as manager:
        rows_seen = 0
        while not manager.is_live():
            rows_seen += manager.poll(1000).num_rows

    assert rows_seen == 10
