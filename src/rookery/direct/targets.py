"""The topics that are written without a broker: found or created, with their effective settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from rookery.clock import Random, SystemRandom
from rookery.cluster.events.brokerevents import SettingChange
from rookery.cluster.events.topicevents import TopicCreated
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.direct.log import DirectLog
from rookery.errors import ApiError, ConfigError, ErrorCode
from rookery.model.topicname import RESERVED_TOPICS
from rookery.model.uuid import random_uuid

MAX_PARTITIONS: Final = 10_000
"""The maximum number of partitions of a created topic."""
_NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
# Topic settings, with the broker settings from which they are inherited, and the defaults.
_INHERITED: Final = {
    "max.message.bytes": ("message.max.bytes", "1048588"),
    "cleanup.policy": ("log.cleanup.policy", "delete"),
    "compression.type": ("compression.type", "producer"),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms", "3600000"),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms", str(2**63 - 1)),
}


class TopicTarget(NamedTuple):
    """A topic, with the requirements of its settings for records."""

    topic_id: bytes
    name: str
    partitions: int
    max_message_bytes: int
    is_compacted: bool
    codec: str
    """The compression that the topic requires; empty: the writer's choice."""
    is_append_time: bool
    after_max_ms: int
    before_max_ms: int


def target_of(state: State, topic: Topic) -> TopicTarget:
    """Return a topic as a write target."""
    values = {name: _setting(state, topic, name) for name in _INHERITED}
    codec = values["compression.type"]
    return TopicTarget(
        topic.id,
        topic.name,
        len(topic.partitions),
        int(values["max.message.bytes"]),
        "compact" in values["cleanup.policy"],
        {"producer": "", "uncompressed": "none"}.get(codec, codec),
        topic.is_append_time,
        int(values["message.timestamp.after.max.ms"]),
        int(values["message.timestamp.before.max.ms"]),
    )


def _setting(state: State, topic: Topic, name: str) -> str:
    synonym, default = _INHERITED[name]
    return topic.configs.get(name) or state.broker_configs.get("", {}).get(synonym) or default


async def find_target(
    log: DirectLog,
    name: str,
    partitions: int = 0,
    random: Random | None = None,
    configs: Mapping[str, str] = _NO_CONFIGS,
) -> TopicTarget:
    """Find a topic, or create it with `partitions` and `configs`; 0 partitions: do not create.

    Raises:
        ApiError: the topic does not exist, or cannot be created.
    """
    if name in RESERVED_TOPICS:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name!r}: Kafka's own name; use another",
        )
    state = await log.barrier()
    topic = state.topics.by_name.get(name)
    if topic is None:
        topic = await _create(log, name, partitions, random or SystemRandom(), configs)
    return target_of(log.state, topic)


async def _create(
    log: DirectLog, name: str, partitions: int, random: Random, configs: Mapping[str, str]
) -> Topic:
    if not partitions:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no topic {name!r}; create it, or set createTopic to the number of "
            "partitions that it must have",
        )
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise ConfigError(f"createTopic={partitions}: must be from 1 to {MAX_PARTITIONS}")
    if name in {".", ".."} or not _NAME.fullmatch(name):
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{name[:300]!r} is not a topic name: 1 to 249 of a-z, A-Z, 0-9, '.', '_', '-'",
        )
    event = TopicCreated(
        topic_id=random_uuid(random.token), name=name, partitions=partitions, replication_factor=1,
        configs=[SettingChange(name=key, value=value) for key, value in sorted(configs.items())],
    )  # fmt: skip
    [outcome] = await log.propose([event])
    topic = log.state.topics.by_name.get(name)
    if topic is None:  # if it exists, another process created it in the meantime
        raise ApiError(outcome.error, f"topic {name!r} could not be made: {outcome.error.name}")
    return topic
