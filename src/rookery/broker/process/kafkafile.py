"""Converts Kafka's `server.properties` into settings for serving the directory it names.

Keys with a counterpart are converted, and defaults of topics become `defaults`. All others are
reported in warnings: keys of security without an effect, keys without a meaning for a single
broker, and unknown keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rookery.broker.config.configkeys import BROKER_KEYS
from rookery.broker.process.kafkalisteners import KafkaListener, read_listeners
from rookery.broker.process.kafkalogins import access_values
from rookery.broker.process.kafkaproperties import KafkaProperties, read_properties
from rookery.broker.settings import BrokerSettings
from rookery.config.schema import Setting, settings_of
from rookery.config.sources import GivenValue
from rookery.errors import ConfigError

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
    "max.connections.per.ip": ("max_connections_per_ip", 0),
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
_UNUSED: Final = (
    "process.roles", "controller.", "early.start.", "inter.broker.", "num.network.threads",
    "num.io.threads", "socket.", "num.recovery.", "default.replication.factor",
    "min.insync.replicas", "replica.",
    "offsets.topic.replication.", "transaction.state.log.replication.",
    "transaction.state.log.min.isr", "share.coordinator.", "broker.heartbeat.",
    "broker.session.", "metadata.log.", "metadata.max.", "log.retention.check.interval.ms",
    "log.cleaner.", "log.flush.", "background.threads", "queued.max.", "quorum.",
    "group.consumer.", "group.share.", "group.streams.", "group.coordinator.",
)  # fmt: skip
"""Prefixes of keys that have a meaning in Kafka, but not for a single broker."""
_GUARDS: Final = (
    "authorizer.", "super.users", "allow.everyone.", "sasl.", "ssl.", "listener.name",
    "principal.builder.", "security.", "connections.max.reauth.ms", "max.connections.per.ip",
    "delegation.token.",
)  # fmt: skip


@dataclass(slots=True)
class KafkaFile:
    """The settings and warnings from a `server.properties`."""

    given: list[GivenValue] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_kafka_file(path: Path) -> KafkaFile:
    """Read the settings in a `server.properties`.

    Raises:
        ConfigError: it cannot be read, or requires something that cannot be served.
    """
    file = read_properties(path)
    listeners = read_listeners(file)
    names = tuple(listener.name for listener in listeners)
    by_name = {
        ".".join(setting.path): setting
        for setting in settings_of(BrokerSettings, ((("listeners",), names),))
    }
    result = KafkaFile()
    for name, value, key in (*_place(file), *_listeners(listeners), *_translate(file)):
        result.given.append(_make_given(by_name[name], value, f"{path} {key}"))
    defaults = dict(_defaults(file.values))
    if defaults:
        text = ",".join(f"{name}={value}" for name, value in defaults.items())
        result.given.append(_make_given(by_name["defaults"], text, str(path)))
    result.warnings = [*_warnings(file), *file.warnings]
    return result


def _make_given(setting: Setting, value: str, source: str) -> GivenValue:
    return GivenValue(setting, value, is_text=True, source=source)


def _place(file: KafkaProperties) -> Iterator[tuple[str, str, str]]:
    """Yield which directory is served, and as which node: name, value, and Kafka's name."""
    folder = file.get("log.dir")
    folder = file.get("log.dirs") or folder
    if not folder:
        raise ConfigError(f"{file.path}: log.dirs is missing; it names the directory to serve")
    yield "log_dir", folder, "log.dirs"
    node = file.get("broker.id")
    node = file.get("node.id") or node
    if node:
        yield "node_id", node, "node.id"


def _listeners(listeners: Sequence[KafkaListener]) -> Iterator[tuple[str, str, str]]:
    """Yield the settings of listeners; a single one can be overridden by flags."""
    for listener in listeners:
        is_only = len(listeners) == 1
        place = "" if is_only else f"listeners.{listener.name}."
        yield f"{place}listen", listener.listen, "listeners"
        if listener.advertise:
            yield f"{place}advertise", listener.advertise, "advertised.listeners"
        for name, value in listener.security.items():
            source = f"listener {listener.name}"
            yield f"{'security.' if is_only else place}{name}", value, source


def _translate(file: KafkaProperties) -> Iterator[tuple[str, str, str]]:
    yield from access_values(file)
    for key, (name, factor) in _SETTINGS.items():
        if key in file.values:
            value = file.get(key)
            yield name, str(int(value) * factor) if factor else value, key


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


def _warnings(file: KafkaProperties) -> Iterator[str]:
    inherited = dict(_defaults(file.values))
    keys = [
        key for key in file.find_unused(file.values) if key not in _HOURS and key not in inherited
    ]
    guards = [key for key in keys if key.startswith(_GUARDS)]
    rest = [key for key in keys if key not in guards]
    unused = [key for key in rest if key.startswith(_UNUSED)]
    unknown = [key for key in rest if key not in unused]
    if guards:
        yield f"{file.path}: these keys of security have no effect: {', '.join(guards)}"
    if unused:
        yield f"{file.path}: these keys have no meaning for a single broker: {', '.join(unused)}"
    if unknown:
        yield f"{file.path}: unknown keys: {', '.join(unknown)}"
