"""Translates librdkafka's configuration keys to client settings.

A key is translated, ignored or rejected. Keys that cannot change which records are read are
ignored: buffers, group membership, commits, logging, and everything for producers. One warning
names them all. Keys that librdkafka does not know, and security settings that cannot be applied,
are rejected.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from rookery.client.settings import ClientSettings, Sasl
from rookery.errors import ConfigError
from rookery.security.tls import ClientTls, KeyPair

log = logging.getLogger(__name__)

_PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_ALIASES: Final = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "request.timeout.ms": "socket.timeout.ms",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}
_NUMBERS: Final = {
    "socket.timeout.ms": "request_timeout_ms",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "retry.backoff.max.ms": "retry_backoff_max_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "receive.message.max.bytes": "max_frame_bytes",
}
"""Keys with a number, and the fields of `ClientSettings` that they set."""
_KEYS: Final = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "enable.ssl.certificate.verification",
        "group.id",
        "isolation.level",
        "sasl.mechanism",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        *_NUMBERS,
    }
)
_IGNORED: Final = frozenset(
    {
        "acks", "allow.auto.create.topics", "api.version.fallback.ms",
        "api.version.request", "api.version.request.timeout.ms", "auto.commit.enable",
        "auto.commit.interval.ms", "auto.offset.reset", "batch.num.messages", "batch.size",
        "broker.address.family", "broker.address.ttl", "broker.version.fallback",
        "check.crcs", "client.dns.lookup", "client.rack", "compression.codec",
        "compression.level", "compression.type", "connections.max.idle.ms",
        "consume.callback.max.messages", "coordinator.query.interval.ms", "debug",
        "delivery.report.only.error", "delivery.timeout.ms", "enable.auto.commit",
        "enable.auto.offset.store", "enable.gapless.guarantee", "enable.idempotence",
        "enable.metrics.push", "enable.partition.eof", "enable.random.seed",
        "fetch.error.backoff.ms", "fetch.max.bytes", "fetch.message.max.bytes",
        "fetch.min.bytes", "fetch.queue.backoff.ms", "fetch.wait.max.ms",
        "group.instance.id", "group.protocol", "group.protocol.type",
        "group.remote.assignor", "heartbeat.interval.ms", "linger.ms",
        "log.connection.close", "log.queue", "log.thread.name", "log_level",
        "max.in.flight", "max.in.flight.requests.per.connection",
        "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records",
        "message.copy.max.bytes", "message.max.bytes", "message.send.max.retries",
        "message.timeout.ms", "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy", "offset.store.method", "offset.store.path",
        "offset.store.sync.interval.ms", "partition.assignment.strategy", "partitioner",
        "produce.offset.report", "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes", "queue.buffering.max.messages",
        "queue.buffering.max.ms", "queued.max.messages.kbytes", "queued.min.messages",
        "queuing.strategy", "reconnect.backoff.jitter.ms", "reconnect.backoff.max.ms",
        "reconnect.backoff.ms", "request.required.acks", "retries", "session.timeout.ms",
        "socket.blocking.max.ms", "socket.keepalive.enable", "socket.max.fails",
        "socket.nagle.disable", "socket.receive.buffer.bytes", "socket.send.buffer.bytes",
        "statistics.interval.ms", "sticky.partitioning.linger.ms",
        "topic.metadata.propagation.max.ms", "topic.metadata.refresh.fast.cnt",
        "topic.metadata.refresh.fast.interval.ms", "topic.metadata.refresh.sparse",
        "transaction.timeout.ms", "transactional.id",
    }
)  # fmt: skip


def client_settings(config: Mapping[str, object]) -> ClientSettings:
    """Convert a librdkafka configuration to client settings.

    Raises:
        ConfigError: a key is unknown, or its value cannot be used.
    """
    values = config_text(config)
    _check_keys(values)
    if "bootstrap.servers" not in values:
        raise ConfigError("config: bootstrap.servers: name at least one broker as host:port")
    protocol = values.get("security.protocol", "plaintext").lower()
    if protocol not in _PROTOCOLS:
        raise ConfigError(
            f"config: security.protocol={protocol!r}: choose from {', '.join(_PROTOCOLS)}"
        )
    numbers: dict[str, Any] = {
        field: _number(key, values[key]) for key, field in _NUMBERS.items() if key in values
    }
    return ClientSettings(
        bootstrap=values["bootstrap.servers"],
        client_id=values.get("client.id", "rookery"),
        tls=_tls(values) if protocol.endswith("ssl") else None,
        sasl=_sasl(values) if protocol.startswith("sasl") else None,
        **numbers,
    )


def config_text(config: Mapping[str, object]) -> dict[str, str]:
    """Return a configuration with librdkafka's primary key names and all values as text."""
    return {
        _ALIASES.get(key, key): str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in config.items()
    }


def _check_keys(values: Mapping[str, str]) -> None:
    refused = sorted(set(values) - _KEYS - _IGNORED)
    if refused:
        known = ", ".join(sorted(_KEYS))
        raise ConfigError(
            f"config: {', '.join(refused)}: not supported; leave them out. Supported are {known}; "
            "librdkafka's keys for buffers, groups, commits and producers are ignored"
        )
    ignored = sorted(set(values) & _IGNORED)
    if ignored:
        log.warning(
            "config: without effect here, where nothing is committed and no group is joined: %s",
            ", ".join(ignored),
        )


def _number(key: str, value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        number = 0
    if number <= 0:
        raise ConfigError(f"config: {key}={value!r}: must be a number above 0")
    return number


def _tls(config: Mapping[str, str]) -> ClientTls:
    own = None
    if certificate := config.get("ssl.certificate.location"):
        key, password = config.get("ssl.key.location"), config.get("ssl.key.password")
        own = KeyPair(certificate, key, password)
    elif "ssl.key.location" in config:
        raise ConfigError("config: ssl.key.location: needs ssl.certificate.location, too")
    checks = config.get("ssl.endpoint.identification.algorithm", "https")
    if checks not in {"https", "none"}:
        raise ConfigError(
            f"config: ssl.endpoint.identification.algorithm={checks!r}: choose https or none"
        )
    return ClientTls(
        ca_file=config.get("ssl.ca.location"),
        ca_data=config.get("ssl.ca.pem"),
        own=own,
        verify=config.get("enable.ssl.certificate.verification", "true").lower() != "false",
        check_hostname=checks == "https",
    )


def _sasl(config: Mapping[str, str]) -> Sasl:
    mechanism = config.get("sasl.mechanism", "")
    missing = [
        name
        for name, value in (
            ("sasl.mechanism", mechanism),
            ("sasl.username", config.get("sasl.username")),
            ("sasl.password", config.get("sasl.password")),
        )
        if not value
    ]
    if missing:
        raise ConfigError(f"config: {', '.join(missing)}: must be set for security.protocol=sasl_…")
    return Sasl(mechanism, config["sasl.username"], config["sasl.password"])
