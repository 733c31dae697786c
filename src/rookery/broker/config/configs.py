"""Settings of topics and brokers: the values that are allowed, and the value in force.

A topic's own setting wins, then the one set for all brokers at run time, then the default.

    limits = configs.resolve(state, topic)
    if size > limits.max_message_bytes: ...

`TopicCache` keeps values that are computed from a topic, such as its settings in force. Produces
ask for them for every topic and fetches for every partition, so a lookup is cheap. A topic gets a
new version whenever something changes that a value can depend on. No two topics share a version,
so the version is the whole key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from rookery.broker.config.configkeys import (
    BROKER_KEYS,
    GROUP_KEYS,
    MAX_INT,
    MAX_LONG,
    TOPIC_KEYS,
    BrokerKey,
    ConfigKey,
    ConfigKind,
    split,
)
from rookery.broker.settings import BrokerSettings
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.errors import ApiError, ConfigError, ErrorCode
from rookery.store.open import name_of

ALL_BROKERS: Final = ""
"""The resource name of the settings for all brokers."""
MAX_CONFIG_BYTES: Final = 16 * 1024
"""The maximum size of one resource's settings, since every broker keeps them in memory."""

_GZIP_AUTO: Final = ("gzip", "-1")
_BOUNDS: Final = {ConfigKind.INT: MAX_INT, ConfigKind.LONG: MAX_LONG}


class ConfigSource(IntEnum):
    """The source of a value, numbered as in DescribeConfigs."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    FILE = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    """A source of a setting; the first one is effective. One without a name is not reported."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class TopicConfigs:
    """A topic's effective settings, parsed; times in milliseconds, -1 for no limit."""

    is_deleted: bool
    """Whether cleanup.policy includes 'delete'."""
    is_compacted: bool
    compression_type: str
    compression_level: int | None
    """The level for the codec in `compression_type`; None for the codec's default."""
    file_delete_delay_ms: int
    max_message_bytes: int
    timestamp_after_max_ms: int
    timestamp_before_max_ms: int
    is_append_time: bool
    retention_bytes: int
    retention_ms: int
    validates_compressed: bool
    segment_bytes: int
    segment_ms: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float


def resolve(state: State, topic: Topic) -> TopicConfigs:
    """Compute the effective settings of a topic; `TopicCache` caches them."""
    values = {
        key.name: synonyms(key, topic.configs, state.broker_configs)[0].value or ""
        for key in TOPIC_KEYS.values()
    }
    codec = values["compression.type"]
    level = values.get(f"compression.{codec}.level")
    policy = split(values["cleanup.policy"])
    return TopicConfigs(
        is_deleted="delete" in policy,
        is_compacted="compact" in policy,
        compression_type=codec,
        compression_level=None if level is None or (codec, level) == _GZIP_AUTO else int(level),
        file_delete_delay_ms=int(values["file.delete.delay.ms"]),
        max_message_bytes=int(values["max.message.bytes"]),
        timestamp_after_max_ms=int(values["message.timestamp.after.max.ms"]),
        timestamp_before_max_ms=int(values["message.timestamp.before.max.ms"]),
        is_append_time=topic.is_append_time,
        retention_bytes=int(values["retention.bytes"]),
        retention_ms=int(values["retention.ms"]),
        validates_compressed=values["rookery.validate.compressed"] == "true",
        segment_bytes=int(values["segment.bytes"]),
        segment_ms=int(values["segment.ms"]),
        delete_retention_ms=int(values["delete.retention.ms"]),
        min_compaction_lag_ms=int(values["min.compaction.lag.ms"]),
        max_compaction_lag_ms=int(values["max.compaction.lag.ms"]),
        min_cleanable_dirty_ratio=float(values["min.cleanable.dirty.ratio"]),
    )


def synonyms(
    key: ConfigKey, own: Mapping[str, str], brokers: Mapping[str, Mapping[str, str]]
) -> list[Synonym]:
    """Return the sources of a topic setting, the effective one first."""
    sources = [Synonym(key.name, own[key.name], ConfigSource.TOPIC)] if key.name in own else []
    inherited = brokers.get(ALL_BROKERS, {}).get(key.synonym)
    if inherited is not None:
        sources.append(Synonym(key.synonym, inherited, ConfigSource.ALL_BROKERS))
    inherits = BROKER_KEYS.get(key.synonym)
    # Kafka reports a default only if the broker setting has one.
    shown = key.synonym if inherits is not None and inherits.default is not None else ""
    return [*sources, Synonym(shown, key.default, ConfigSource.DEFAULT)]


def broker_synonyms(
    key: BrokerKey, facts: Mapping[str, str | None], brokers: Mapping[str, Mapping[str, str]]
) -> list[Synonym]:
    """Return the sources of a broker setting, the effective one first."""
    sources = []
    dynamic = brokers.get(ALL_BROKERS, {}).get(key.name)
    if dynamic is not None:
        sources.append(Synonym(key.name, dynamic, ConfigSource.ALL_BROKERS))
    fact = facts.get(key.name, key.default)
    if fact != key.default:
        sources.append(Synonym(key.name, fact, ConfigSource.FILE))
    if key.default is not None or not sources:
        sources.append(Synonym(key.name, key.default, ConfigSource.DEFAULT))
    return sources


def group_synonyms(
    key: ConfigKey, own: Mapping[str, str], settings: BrokerSettings
) -> list[Synonym]:
    """Return the sources of a group setting, the effective one first."""
    sources = [Synonym(key.name, own[key.name], ConfigSource.GROUP)] if key.name in own else []
    fact = _group_facts(settings)[key.synonym]
    if fact != key.default:
        sources.append(Synonym(key.synonym, fact, ConfigSource.FILE))
    return [*sources, Synonym(key.synonym, key.default, ConfigSource.DEFAULT)]


def _group_facts(settings: BrokerSettings) -> dict[str, str]:
    return {
        "group.consumer.heartbeat.interval.ms": str(settings.consumer_groups.heartbeat_interval_ms),
        "group.consumer.session.timeout.ms": str(settings.consumer_groups.session_timeout_ms),
    }


def facts(settings: BrokerSettings, node_id: int, address: str) -> dict[str, str | None]:
    """Return the broker's start-up settings under Kafka's names."""
    return {
        "advertised.listeners": f"PLAINTEXT://{address}",
        "auto.create.topics.enable": _text(flag=settings.auto_create_topics),
        "broker.heartbeat.interval.ms": str(settings.beat_interval_ms),
        "broker.id": str(node_id),
        "broker.rack": settings.rack or None,
        "broker.session.timeout.ms": str(settings.session_timeout_ms),
        "listeners": f"PLAINTEXT://{settings.listen}",
        "log.dirs": log_dir(settings),
        "max.connections": str(settings.max_connections),
        "max.connections.per.ip": str(settings.max_connections_per_ip),
        "node.id": str(node_id),
        "num.partitions": str(settings.partitions),
        "queued.max.request.bytes": str(settings.request_bytes),
        "transaction.max.timeout.ms": str(settings.transaction_max_timeout_ms),
        "transactional.id.expiration.ms": str(settings.transactional_id_expiration_ms),
    }


def log_dir(settings: BrokerSettings) -> str:
    """Return the store's URL without its secrets, or the absolute path of the log folder."""
    folder = Path(settings.log_dir.partition(",")[0] or settings.data).absolute()
    return name_of(settings.store) or str(folder)


def _text(*, flag: bool) -> str:
    return "true" if flag else "false"


def _check_values(
    kind: str, keys: Mapping[str, ConfigKey], values: Mapping[str, str | None]
) -> dict[str, str]:
    """Validate each setting of a topic or group individually."""
    checked: dict[str, str] = {}
    for name, value in values.items():
        key = keys.get(name)
        if key is None:
            raise invalid(f"Unknown {kind} config name: {name}")
        if value is None:
            raise invalid(f"Null value not supported for {kind} configs: {name}")
        checked[name] = _check_value(name, key, value)
    return checked


def check_topic(values: Mapping[str, str | None]) -> dict[str, str]:
    """Validate a topic's settings, individually and in combination; return them.

    Raises:
        ApiError: INVALID_CONFIG, with the name and the reason.
    """
    checked = _check_values("topic", TOPIC_KEYS, values)
    _check_together(checked)
    return checked


def check_brokers(values: Mapping[str, str | None]) -> dict[str, str]:
    """Validate settings for all brokers; return them.

    Raises:
        ApiError: INVALID_CONFIG, with the name and the reason.
    """
    checked: dict[str, str] = {}
    for name, value in values.items():
        key = BROKER_KEYS.get(name)
        if key is None:
            raise invalid(f"Unknown broker config name: {name}")
        if not key.is_dynamic or key.topic_key is None:
            raise invalid(f"{name} cannot be changed while the broker runs; set it at its start")
        if value is None:
            raise invalid(f"Null value not supported for broker configs: {name}")
        checked[name] = _check_value(name, key.topic_key, value)
    _check_size(checked)
    return checked


def check_group(values: Mapping[str, str | None], settings: BrokerSettings) -> dict[str, str]:
    """Validate a group's settings together with the inherited ones; return them.

    Raises:
        ApiError: INVALID_CONFIG, with the name and the reason.
    """
    checked = _check_values("group", GROUP_KEYS, values)
    session_ms, heartbeat_ms = (
        int(group_synonyms(GROUP_KEYS[name], checked, settings)[0].value or "")
        for name in ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms")
    )
    if session_ms <= heartbeat_ms:
        raise invalid(
            f"consumer.session.timeout.ms ({session_ms}) must be greater than "
            f"consumer.heartbeat.interval.ms ({heartbeat_ms})"
        )
    return checked


def parse_defaults(text: str) -> dict[str, str]:
    """Parse the defaults that topics inherit: Kafka's names and values, separated by commas.

    Raises:
        ConfigError: a name is unknown or a value is invalid.
    """
    values: dict[str, str | None] = {}
    for part in split(text):
        name, _, value = part.partition("=")
        values[name.strip()] = value
    try:
        return check_brokers(values)
    except ApiError as error:
        raise ConfigError(f"defaults: {error.text}") from error


def _type_problem(kind: ConfigKind) -> str:
    """Return Kafka's words for a value that is not of a type."""
    if kind is ConfigKind.BOOLEAN:
        return "Expected value to be either true or false"
    return f"Not a number of type {kind.name}"


def _check_value(name: str, key: ConfigKey, value: str) -> str:
    """Return a value in its canonical form, as Kafka describes it."""
    text = value.strip()
    try:
        is_typed = _is_typed(key.kind, text)
    except ValueError:
        is_typed = False
    if not is_typed:
        raise invalid(
            f"Invalid value {value[:200]} for configuration {name}: {_type_problem(key.kind)}"
        )
    wrong = key.check(text) if key.check else None
    if wrong is not None:
        raise invalid(f"Invalid value {value[:200]} for configuration {name}: {wrong}")
    if key.kind is ConfigKind.LIST:
        return ",".join(dict.fromkeys(split(text)))
    return text.lower() if key.kind is ConfigKind.BOOLEAN else text


def _is_typed(kind: ConfigKind, text: str) -> bool:
    match kind:
        case ConfigKind.INT | ConfigKind.LONG:
            # Python parses "1_000" and digits of other scripts as numbers; Kafka does not.
            return (
                text.isascii() and "_" not in text and -_BOUNDS[kind] <= int(text) <= _BOUNDS[kind]
            )
        case ConfigKind.DOUBLE:
            return text.isascii() and "_" not in text and float(text) == float(text)
        case ConfigKind.BOOLEAN:
            return text.lower() in {"true", "false"}
        case _:
            return True


def _check_together(values: Mapping[str, str]) -> None:
    low = int(values.get("min.compaction.lag.ms", TOPIC_KEYS["min.compaction.lag.ms"].default))
    high = int(values.get("max.compaction.lag.ms", TOPIC_KEYS["max.compaction.lag.ms"].default))
    if low > high:
        raise invalid(
            f"conflict between min.compaction.lag.ms ({low}) and max.compaction.lag.ms ({high}): "
            "the first must not be larger"
        )
    _check_size(values)


def _check_size(values: Mapping[str, str]) -> None:
    size = sum(len(name) + len(value.encode()) for name, value in values.items())
    if size > MAX_CONFIG_BYTES:
        raise invalid(f"the settings take {size} bytes; {MAX_CONFIG_BYTES} is the most")


def invalid(text: str) -> ApiError:
    """Return the error for an invalid setting."""
    return ApiError(ErrorCode.INVALID_CONFIG, text)


T = TypeVar("T")

# The number of values of deleted topics that are kept before they are removed.
_MAX_DELETED: Final = 16


class TopicCache(Generic[T]):
    """One value per topic, for its current version."""

    __slots__ = ("_make", "_values", "_versions")

    def __init__(self, make: Callable[[State, Topic], T]) -> None:
        """Start empty.

        Args:
            make: computes a topic's value from the state that its version identifies.
        """
        self._make = make
        self._values: dict[int | None, T] = {}
        self._versions: dict[bytes, int] = {}

    def __len__(self) -> int:
        """Return the number of cached values."""
        return len(self._values)

    def of(self, state: State, topic: Topic) -> T:
        """Return the value of a topic."""
        value = self._values.get(topic.version)
        return self._renew(state, topic) if value is None else value

    def _renew(self, state: State, topic: Topic) -> T:
        value = self._make(state, topic)
        if topic.version is not None:
            self._values.pop(self._versions.get(topic.id), None)
            self._values[topic.version] = value
            self._versions[topic.id] = topic.version
            if len(self._versions) > len(state.topics.by_id) + _MAX_DELETED:
                self._forget_deleted(state)
        return value

    def _forget_deleted(self, state: State) -> None:
        for topic_id in self._versions.keys() - state.topics.by_id.keys():
            self._values.pop(self._versions.pop(topic_id), None)
