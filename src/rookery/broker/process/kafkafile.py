"""Converts Kafka's `server.properties` into settings for serving the directory it names.

Keys with a counterpart are converted, and defaults of topics become `defaults`. All others are
reported in warnings: keys without a meaning for a single broker, and unknown keys.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rookery.broker.config.configkeys import BROKER_KEYS
from rookery.broker.settings import BrokerSettings
from rookery.config.schema import Setting, settings_of
from rookery.config.sources import Given
from rookery.errors import ConfigError, Corrupt
from rookery.formats.logfile.properties import parse_properties

_MAX_BYTES: Final = 1024 * 1024
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_WEEK_MS: Final = 168 * _HOUR_MS

# Kafka's name, our setting, and the factor for the value.
_SETTINGS: Final = {
    "auto.create.topics.enable": ("auto_create_topics", 0),
    "broker.rack": ("rack", 0),
    "delegation.token.expiry.time.ms": ("delegation_tokens.expiry_ms", 0),
    "delegation.token.max.lifetime.ms": ("delegation_tokens.max_lifetime_ms", 0),
    "max.connections": ("max_connections", 0),
    "num.partitions": ("partitions", 0),
    "offsets.retention.minutes": ("offsets_retention_ms", _MINUTE_MS),
    "offsets.topic.num.partitions": ("offsets_topic_partitions", 0),
    "producer.id.expiration.ms": ("producer_expiration_ms", 0),
    "transaction.max.timeout.ms": ("transaction_max_timeout_ms", 0),
    "transaction.state.log.num.partitions": ("transactions_topic_partitions", 0),
    "transactional.id.expiration.ms": ("transactional_id_expiration_ms", 0),
    "group.initial.rebalance.delay.ms": ("classic_groups.initial_rebalance_delay_ms", 0),
    "group.min.session.timeout.ms": ("classic_groups.min_session_timeout_ms", 0),
    "group.max.session.timeout.ms": ("classic_groups.max_session_timeout_ms", 0),
    "group.max.size": ("classic_groups.max_size", 0),
    "group.consumer.session.timeout.ms": ("consumer_groups.session_timeout_ms", 0),
    "group.consumer.heartbeat.interval.ms": ("consumer_groups.heartbeat_interval_ms", 0),
    "group.consumer.max.size": ("consumer_groups.max_size", 0),
}
_HOURS: Final = {
    "log.retention.hours": ("log.retention.ms", _HOUR_MS),
    "log.retention.minutes": ("log.retention.ms", _MINUTE_MS),
    "log.roll.hours": ("log.roll.ms", _HOUR_MS),
}
_PLACE: Final = frozenset(
    {
        "log.dirs", "log.dir", "node.id", "broker.id", "listeners", "advertised.listeners",
        "listener.security.protocol.map", "controller.listener.names",
    }
)  # fmt: skip
_UNUSED: Final = (
    "process.roles", "controller.", "inter.broker.", "num.network.threads", "num.io.threads",
    "socket.", "num.recovery.", "default.replication.factor", "min.insync.replicas", "replica.",
    "offsets.topic.replication.", "transaction.state.log.replication.",
    "transaction.state.log.min.isr", "share.coordinator.", "broker.heartbeat.",
    "broker.session.", "metadata.log.", "metadata.max.", "log.retention.check.interval.ms",
    "log.cleaner.", "log.flush.", "background.threads", "queued.max.", "quorum.",
    "group.consumer.", "group.share.", "group.streams.", "group.coordinator.",
)  # fmt: skip
"""Prefixes of keys that have a meaning in Kafka, but not for a single broker."""
_GUARDS: Final = (
    "authorizer.", "super.users", "allow.everyone.", "sasl.", "ssl.", "listener.name",
    "delegation.token.",
)  # fmt: skip


@dataclass(slots=True)
class KafkaFile:
    """The settings and warnings from a `server.properties`."""

    given: list[Given] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_kafka_file(path: Path) -> KafkaFile:
    """Read the settings in a `server.properties`.

    Raises:
        ConfigError: it cannot be read, or requires something that cannot be served.
    """
    values = _read(path)
    by_name = {".".join(setting.path): setting for setting in settings_of(BrokerSettings)}
    found = KafkaFile()
    for name, value, key in _translated(values, path):
        found.given.append(_given(by_name[name], value, f"{path} {key}"))
    defaults = dict(_defaults(values))
    if defaults:
        text = ",".join(f"{name}={value}" for name, value in defaults.items())
        found.given.append(_given(by_name["defaults"], text, str(path)))
    found.warnings = list(_warnings(values, path))
    return found


def _given(setting: Setting, value: str, source: str) -> Given:
    return Given(setting, value, is_text=True, source=source)


def _read(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{path}: above {_MAX_BYTES} bytes; is this Kafka's server.properties?")
    try:
        # Java's encoding of such files.
        return parse_properties(data.decode("iso-8859-1"), str(path))
    except Corrupt as error:
        raise ConfigError(str(error)) from error


def _translated(values: Mapping[str, str], path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield our settings: name, value, and Kafka's name."""
    folder = values.get("log.dirs") or values.get("log.dir")
    if not folder:
        raise ConfigError(f"{path}: log.dirs is missing; it names the directory to serve")
    yield "log_dir", folder, "log.dirs"
    node = values.get("node.id", values.get("broker.id", ""))
    if node:
        yield "node_id", node, "node.id"
    listener = _listener(values, path)
    if listener is not None:
        host, _, port = listener.address.rpartition(":")
        yield "listen", f"{host or '0.0.0.0'}:{port}", "listeners"  # noqa: S104 (as in the file)
        advertised = _advertised(values, listener) or (
            f"{socket.gethostname()}:{port}" if not host else ""
        )
        if advertised:
            yield "advertise", advertised, "advertised.listeners"
    for key, (name, factor) in _SETTINGS.items():
        if key in values:
            yield name, str(int(values[key]) * factor) if factor else values[key], key


@dataclass(frozen=True, slots=True)
class _Listener:
    name: str
    address: str


def _listeners(text: str) -> Iterator[_Listener]:
    for part in text.split(","):
        name, _, address = part.strip().partition("://")
        if address:
            yield _Listener(name.upper(), address)


def _listener(values: Mapping[str, str], path: Path) -> _Listener | None:
    """Return the listener that clients can use without a password or a certificate."""
    controllers = {
        name.strip().upper() for name in values.get("controller.listener.names", "").split(",")
    }
    protocols = dict(
        part.strip().upper().partition(":")[::2]
        for part in values.get("listener.security.protocol.map", "").split(",")
    )
    offered = [
        one for one in _listeners(values.get("listeners", "")) if one.name not in controllers
    ]
    for one in offered:
        if protocols.get(one.name, one.name) == "PLAINTEXT":
            return one
    if offered:
        names = ", ".join(one.name for one in offered)
        raise ConfigError(
            f"{path}: listeners: {names}: only PLAINTEXT can be served; add such a listener, on an "
            "address that untrusted clients cannot reach"
        )
    return None


def _advertised(values: Mapping[str, str], listener: _Listener) -> str:
    advertised = _listeners(values.get("advertised.listeners", ""))
    return next((one.address for one in advertised if one.name == listener.name), "")


def _defaults(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the defaults of topics, under the names that are supported here."""
    for key, (name, factor) in _HOURS.items():
        if key in values and name not in values:
            number = int(values[key])
            yield name, str(number * factor if number >= 0 else -1)
    if "log.retention.ms" not in values and not _HOURS.keys() & values.keys():
        yield "log.retention.ms", str(_WEEK_MS)
    for key, value in values.items():
        known = BROKER_KEYS.get(key)
        if known is not None and known.topic_key is not None and known.is_dynamic:
            yield key, value


def _warnings(values: Mapping[str, str], path: Path) -> Iterator[str]:
    guards: list[str] = []
    unused: list[str] = []
    unknown: list[str] = []
    inherited = dict(_defaults(values))
    for key in values:
        if key in _SETTINGS or key in _PLACE or key in _HOURS or key in inherited:
            continue
        if key.startswith(_GUARDS):
            guards.append(key)
        else:
            (unused if key.startswith(_UNUSED) else unknown).append(key)
    if guards:
        yield f"{path}: there is no authentication; these keys have no effect: {', '.join(guards)}"
    if unused:
        yield f"{path}: these keys have no meaning for a single broker: {', '.join(unused)}"
    if unknown:
        yield f"{path}: unknown keys: {', '.join(unknown)}"
