"""The tables of settings: every topic setting, and the settings that a broker reports.

Names, types, defaults and limits are Kafka's, so that its tools and users find them unchanged.
Settings "kept for tools" are stored and described but have no effect, since what they configure
does not exist here (index files, followers).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

MAX_LONG: Final = 2**63 - 1
MAX_INT: Final = 2**31 - 1
_WEEK_MS: Final = 7 * 24 * 60 * 60 * 1000

Check = Callable[[str], str | None]
"""Returns the error of a value that has the right type, or None."""


class ConfigKind(IntEnum):
    """Value types, numbered as in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigKey(NamedTuple):
    """One setting of a topic."""

    name: str
    kind: ConfigKind
    default: str
    doc: str
    check: Check | None = None
    synonym: str = ""
    """The broker setting from which topics inherit the default."""


class BrokerKey(NamedTuple):
    """One setting of a broker."""

    name: str
    kind: ConfigKind
    default: str | None
    doc: str
    is_dynamic: bool = False
    """Whether it can be changed at run time, for all brokers together."""
    topic_key: ConfigKey | None = None
    """The topic setting that inherits from it."""


def _at_least(low: float) -> Check:
    return lambda text: f"Value must be at least {low}" if float(text) < low else None


def _between(low: float, high: float) -> Check:
    def check(text: str) -> str | None:
        if float(text) < low:
            return f"Value must be at least {low}"
        return f"Value must be no more than {high}" if float(text) > high else None

    return check


def _one_of(*values: str) -> Check:
    return lambda text: None if text in values else f"String must be one of: {', '.join(values)}"


def _list_of(*values: str) -> Check:
    def check(text: str) -> str | None:
        wrong = [part for part in split(text) if part not in values]
        return f"{wrong[0]!r} is not one of {', '.join(values)}" if wrong else None

    return check


def _gzip_level(text: str) -> str | None:
    return None if text == "-1" or 1 <= int(text) <= 9 else "Value must be between 1 and 9, or -1"


def _check_throttled(text: str) -> str | None:
    for part in split(text):
        partition, colon, broker = part.partition(":")
        if part != "*" and not (colon and partition.isdecimal() and broker.isdecimal()):
            return "Must be the literal '*' or a list of partition:broker pairs"
    return None


def split(text: str) -> list[str]:
    """Split a list value; empty text is an empty list."""
    return [part.strip() for part in text.split(",")] if text.strip() else []


_B, _S, _I, _L, _D, _LIST = (
    ConfigKind.BOOLEAN, ConfigKind.STRING, ConfigKind.INT,
    ConfigKind.LONG, ConfigKind.DOUBLE, ConfigKind.LIST,
)  # fmt: skip

TOPIC_KEYS: Final[dict[str, ConfigKey]] = {
    key.name: key
    for key in (
        ConfigKey(
            "cleanup.policy", _LIST, "delete",
            "How old records are removed: 'delete' removes them by age and size, 'compact' keeps "
            "the newest record of each key; both can be combined.",
            _list_of("compact", "delete"), "log.cleanup.policy",
        ),
        ConfigKey(
            "compression.gzip.level", _I, "-1",
            "The gzip level, if the broker compresses; -1 is gzip's default.",
            _gzip_level, "compression.gzip.level",
        ),
        ConfigKey(
            "compression.lz4.level", _I, "9",
            "The lz4 level, if the broker compresses.",
            _between(1, 17), "compression.lz4.level",
        ),
        ConfigKey(
            "compression.type", _S, "producer",
            "The codec of stored batches; 'producer' keeps that of the producer.",
            _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
            "compression.type",
        ),
        ConfigKey(
            "compression.zstd.level", _I, "3",
            "The zstd level, if the broker compresses.",
            _between(-131072, 22), "compression.zstd.level",
        ),
        ConfigKey(
            "delete.retention.ms", _L, "86400000",
            "How long a compacted topic keeps the tombstones of deleted keys.",
            _at_least(0), "log.cleaner.delete.retention.ms",
        ),
        ConfigKey(
            "file.delete.delay.ms", _L, "60000",
            "How long a file stays on disk after its last record was removed.",
            _at_least(0), "log.segment.delete.delay.ms",
        ),
        ConfigKey(
            "flush.messages", _L, str(MAX_LONG),
            "Kept for tools; the broker's durability setting decides when records are synced.",
            _at_least(1), "log.flush.interval.messages",
        ),
        ConfigKey(
            "flush.ms", _L, str(MAX_LONG),
            "Kept for tools; the broker's durability setting decides when records are synced.",
            _at_least(0), "log.flush.interval.ms",
        ),
        ConfigKey(
            "follower.replication.throttled.replicas", _LIST, "",
            "Kept for tools; there are no followers to throttle.", _check_throttled,
        ),
        ConfigKey(
            "index.interval.bytes", _I, "4096",
            "Kept for tools; the log's index has an entry for each extent.",
            _at_least(0), "log.index.interval.bytes",
        ),
        ConfigKey(
            "leader.replication.throttled.replicas", _LIST, "",
            "Kept for tools; there are no followers to throttle.", _check_throttled,
        ),
        ConfigKey(
            "local.retention.bytes", _L, "-2",
            "Kept for tools; -2 stands for the value of retention.bytes.",
            _at_least(-2), "log.local.retention.bytes",
        ),
        ConfigKey(
            "local.retention.ms", _L, "-2",
            "Kept for tools; -2 stands for the value of retention.ms.",
            _at_least(-2), "log.local.retention.ms",
        ),
        ConfigKey(
            "max.compaction.lag.ms", _L, str(MAX_LONG),
            "The longest time that a record may stay in a compacted topic without being compacted.",
            _at_least(1), "log.cleaner.max.compaction.lag.ms",
        ),
        ConfigKey(
            "max.message.bytes", _I, "1048588",
            "The largest accepted batch, as it is sent (compressed).",
            _at_least(0), "message.max.bytes",
        ),
        ConfigKey(
            "message.timestamp.after.max.ms", _L, "3600000",
            "How far a record's timestamp can be ahead of the broker's clock.",
            _at_least(0), "log.message.timestamp.after.max.ms",
        ),
        ConfigKey(
            "message.timestamp.before.max.ms", _L, str(MAX_LONG),
            "How much older than the broker's clock a record's timestamp can be.",
            _at_least(0), "log.message.timestamp.before.max.ms",
        ),
        ConfigKey(
            "message.timestamp.type", _S, "CreateTime",
            "The clock that sets timestamps: the producer's, or the cluster's on arrival.",
            _one_of("CreateTime", "LogAppendTime"), "log.message.timestamp.type",
        ),
        ConfigKey(
            "min.cleanable.dirty.ratio", _D, "0.5",
            "The share of a compacted topic that must be new before it is compacted again.",
            _between(0, 1), "log.cleaner.min.cleanable.ratio",
        ),
        ConfigKey(
            "min.compaction.lag.ms", _L, "0",
            "The minimum age of a record before it is compacted.",
            _at_least(0), "log.cleaner.min.compaction.lag.ms",
        ),
        ConfigKey(
            "min.insync.replicas", _I, "1",
            "Kept for tools; every acknowledged record is durable, regardless of this value.",
            _at_least(1), "min.insync.replicas",
        ),
        ConfigKey(
            "preallocate", _B, "false",
            "Kept for tools; files grow as they are written.", None, "log.preallocate",
        ),
        ConfigKey("remote.log.copy.disable", _B, "false", "Kept for tools."),
        ConfigKey("remote.log.delete.on.disable", _B, "false", "Kept for tools."),
        ConfigKey(
            "remote.storage.enable", _B, "false",
            "Kafka's tiered storage; here the cluster decides where the log is stored, so this "
            "stays false.",
            _one_of("false"),
        ),
        ConfigKey(
            "retention.bytes", _L, "-1",
            "The size of a partition above which its oldest records are deleted; -1 for no limit.",
            None, "log.retention.bytes",
        ),
        ConfigKey(
            "retention.ms", _L, str(_WEEK_MS),
            "The age above which records are deleted; -1 for no limit.",
            _at_least(-1), "log.retention.ms",
        ),
        ConfigKey(
            "rookery.validate.compressed", _B, "false",
            "Whether compressed batches are decompressed on arrival, and refused if one of their "
            "records cannot be read; other batches are always checked.",
            None, "rookery.validate.compressed",
        ),
        ConfigKey(
            "segment.bytes", _I, "1073741824",
            "The maximum size of a segment.",
            _at_least(1048576), "log.segment.bytes",
        ),
        ConfigKey(
            "segment.index.bytes", _I, "10485760",
            "Kept for tools; there are no index files.", _at_least(4), "log.index.size.max.bytes",
        ),
        ConfigKey(
            "segment.jitter.ms", _L, "0",
            "Kept for tools.", _at_least(0), "log.roll.jitter.ms",
        ),
        ConfigKey(
            "segment.ms", _L, str(_WEEK_MS),
            "The age at which a segment takes no more records.",
            _at_least(1), "log.roll.ms",
        ),
        ConfigKey(
            "unclean.leader.election.enable", _B, "false",
            "Kept for tools; any broker can lead, and each one has all records.",
            None, "unclean.leader.election.enable",
        ),
    )
}  # fmt: skip
"""The settings of a topic by name, in order."""

_OWN: Final = (
    BrokerKey("advertised.listeners", _LIST, None, "The address that is advertised."),
    BrokerKey("auto.create.topics.enable", _B, "true", "Whether a request creates a topic."),
    BrokerKey("broker.heartbeat.interval.ms", _I, "3000", "The heartbeat interval of brokers."),
    BrokerKey("broker.id", _I, "-1", "This broker's node id."),
    BrokerKey("broker.rack", _S, None, "The broker's rack."),
    BrokerKey("broker.session.timeout.ms", _I, "10000", "A broker silent for longer is expired."),
    BrokerKey("default.replication.factor", _I, "1", "The default of new topics."),
    BrokerKey("delete.topic.enable", _B, "true", "Topics can be deleted."),
    BrokerKey("listeners", _LIST, None, "The address that the broker listens on."),
    BrokerKey("log.dirs", _LIST, None, "The folder of the log."),
    BrokerKey("log.retention.hours", _I, "168", "Used if log.retention.ms is not set."),
    BrokerKey("log.roll.hours", _I, "168", "Used if log.roll.ms is not set."),
    BrokerKey("max.connections", _I, "10000", "The maximum number of client connections."),
    BrokerKey(
        "max.connections.per.ip", _I, "2147483647", "The maximum number of connections of a host."
    ),
    BrokerKey("node.id", _I, "-1", "This broker's node id."),
    BrokerKey("num.partitions", _I, "1", "The default of new topics."),
    BrokerKey("process.roles", _LIST, "broker", "Every process is a broker; none is a controller."),
    BrokerKey("transaction.max.timeout.ms", _I, "900000", "The longest transaction timeout."),
    BrokerKey(
        "transactional.id.expiration.ms", _I, "604800000", "An id idle for longer is removed."
    ),
    BrokerKey("queued.max.request.bytes", _L, None, "Memory for unanswered requests."),
)

# In Kafka the default is on the variant in hours. Here only milliseconds are supported.
_NO_DEFAULT: Final = frozenset(
    {"log.flush.interval.ms", "log.retention.ms", "log.roll.jitter.ms", "log.roll.ms"}
)
# Apply uses only the topic's own setting to choose the clock, so this one is not inherited.
_NOT_INHERITED: Final = frozenset({"log.message.timestamp.type"})

GROUP_KEYS: Final[dict[str, ConfigKey]] = {
    key.name: key
    for key in (
        ConfigKey(
            "consumer.heartbeat.interval.ms",
            ConfigKind.INT,
            "5000",
            "How often members of a consumer group (KIP-848) send heartbeats.",
            _at_least(1),
            "group.consumer.heartbeat.interval.ms",
        ),
        ConfigKey(
            "consumer.session.timeout.ms",
            ConfigKind.INT,
            "45000",
            "A member of a consumer group (KIP-848) that is silent for longer is removed.",
            _at_least(1),
            "group.consumer.session.timeout.ms",
        ),
    )
}
"""Group settings; `synonym` is the broker setting that applies to all other groups."""

BROKER_KEYS: Final[dict[str, BrokerKey]] = {
    key.name: key
    for key in sorted(
        (
            *_OWN,
            *(
                BrokerKey(
                    key.synonym,
                    key.kind,
                    None if key.synonym in _NO_DEFAULT else key.default,
                    f"The value for topics without their own {key.name}. {key.doc}",
                    key.synonym not in _NOT_INHERITED,
                    key,
                )
                for key in TOPIC_KEYS.values()
                if key.synonym
            ),
        ),
        key=lambda key: key.name,
    )
}
"""The settings of a broker by name, in order."""
