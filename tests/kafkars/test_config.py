"""librdkafka's keys: those that are translated, and those that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from rookery.client.librdkafka import client_settings
from rookery.errors import ConfigError
from rookery.kafkars import ConsumerManager, SourceTopic
from rookery.testing.kafka import KafkaServer
from rookery.testing.kafkalogs import NOON, Logs, rows

PLAIN = {"bootstrap.servers": "127.0.0.1:9092"}
SASL = {**PLAIN, "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}


def test_plain_config_is_translated() -> None:
    settings = client_settings({**PLAIN, "client.id": "me", "group.id": "us"})

    assert (settings.bootstrap, settings.client_id) == ("127.0.0.1:9092", "me")
    assert (settings.tls, settings.sasl) == (None, None)


def test_full_security_config_is_translated() -> None:
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


USUAL = (
    "allow.auto.create.topics", "api.version.request", "auto.commit.interval.ms",
    "auto.offset.reset", "broker.address.family", "check.crcs", "client.rack",
    "connections.max.idle.ms", "debug", "enable.auto.commit", "enable.auto.offset.store",
    "enable.partition.eof", "fetch.max.bytes", "fetch.message.max.bytes", "fetch.min.bytes",
    "fetch.wait.max.ms", "group.instance.id", "heartbeat.interval.ms", "log_level",
    "max.partition.fetch.bytes", "max.poll.interval.ms", "partition.assignment.strategy",
    "queued.max.messages.kbytes", "queued.min.messages", "reconnect.backoff.max.ms",
    "reconnect.backoff.ms", "session.timeout.ms", "socket.keepalive.enable",
    "socket.nagle.disable", "statistics.interval.ms",
)  # fmt: skip


def test_one_warning_names_all_keys_without_effect(caplog: pytest.LogCaptureFixture) -> None:
    settings = client_settings({**PLAIN, **dict.fromkeys(USUAL, "1")})

    assert settings == client_settings(PLAIN)
    [record] = caplog.records
    assert record.getMessage().endswith(": " + ", ".join(USUAL))


def test_supported_keys_are_translated() -> None:
    settings = client_settings(
        {
            "metadata.broker.list": "127.0.0.1:9092",
            "socket.timeout.ms": 5000,
            "socket.connection.setup.timeout.ms": "4000",
            "retry.backoff.ms": "30",
            "metadata.max.age.ms": "60000",
            "security.protocol": "SSL",
            "enable.ssl.certificate.verification": False,
        }
    )

    assert (settings.bootstrap, settings.request_timeout_ms) == ("127.0.0.1:9092", 5000)
    assert (settings.connect_timeout_ms, settings.retry_backoff_ms) == (4000, 30)
    assert settings.metadata_max_age_ms == 60_000
    assert settings.tls is not None
    assert not settings.tls.verify


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "bootstrap.servers"),
        ({**PLAIN, "ssl.crl.location": "x", "fetch.min.byte": "1"}, "fetch.min.byte, ssl.crl.loc"),
        ({**PLAIN, "sasl.kerberos.keytab": "/k"}, "sasl.kerberos.keytab"),
        ({**PLAIN, "socket.timeout.ms": "soon"}, "socket.timeout.ms='soon'"),
        ({**PLAIN, "security.protocol": "tls"}, "security.protocol"),
        ({**SASL, "sasl.username": "alice"}, "sasl.password"),
        ({**PLAIN, "security.protocol": "ssl", "ssl.key.location": "/k"}, "ssl.certificate"),
        (
            {**PLAIN, "security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "x"},
            "ssl.endpoint.identification.algorithm",
        ),
    ],
)
def test_unsupported_keys_are_refused_by_name(config: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        client_settings(config)


@pytest.mark.parametrize(
    ("config", "sources", "batch_size", "words"),
    [
        ({**PLAIN, "isolation.level": "dirty"}, [SourceTopic("t")], 1, "isolation.level"),
        (PLAIN, [SourceTopic("t")], 0, "batch_size"),
        (PLAIN, [SourceTopic.from_committed("t")], 1, "group.id"),
        ({**PLAIN, "max.poll.record": "1"}, [SourceTopic("t")], 1, "max.poll.record"),
        (PLAIN, [SourceTopic("t")], 1_700_000_000_000, "cutoff_ms="),
        (PLAIN, [{"topic": "t"}], 1, "name, policy and time_ms"),
    ],
)
def test_invalid_manager_arguments_are_refused(
    config: dict[str, str],
    sources: list[SourceTopic | dict[str, Any]],
    batch_size: int,
    words: str,
) -> None:
    with pytest.raises(ConfigError, match=words):
        ConsumerManager(config, sources, batch_size)


@pytest.mark.parametrize(
    ("policy", "time_ms"),
    [("newest", None), ("relative_time", None), ("earliest", 5), ("absolute_time", -1)],
)
def test_invalid_topic_arguments_are_refused(policy: str, time_ms: int | None) -> None:
    with pytest.raises(ConfigError, match=policy if policy == "newest" else "time_ms"):
        SourceTopic("t", policy, time_ms)


def test_tls_with_a_login_is_translated(kafka_secure: KafkaServer) -> None:
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
