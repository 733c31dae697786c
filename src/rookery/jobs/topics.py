"""The topics that jobs write to: made as asked for, or found as they were left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rookery.cluster.events.brokers import ConfigChange, ConfigsChanged
from rookery.cluster.state.topics import Topic
from rookery.direct.blocking import BlockingLog
from rookery.direct.log import DirectLog
from rookery.direct.targets import MAX_PARTITIONS, find_target
from rookery.errors import ConfigError

_TIMES: Final = "message.timestamp.type"
_TOPIC: Final = 2  # as Kafka numbers kinds of resources


def kept_configs(topic: Topic) -> dict[str, str]:
    """Return the settings that a copy of a topic has: all but whose clock counts.

    The records of a copy keep the times that they have, whoever had given them.
    """
    return {name: value for name, value in topic.configs.items() if name != _TIMES}


def make_topic(
    log: BlockingLog, name: str, partitions: int, configs: Mapping[str, str], *, is_begun: bool
) -> None:
    """Make a topic for a job, unless the job has begun with it.

    Args:
        log: of its cluster.
        name: what it is called.
        partitions: how many it has.
        configs: its settings.
        is_begun: whether the job has been at work before; else a topic of that name must be empty.

    Raises:
        ConfigError: it has other partitions, or records of its own.
        ApiError: it cannot be called so.
    """
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise ConfigError(f"{partitions} partitions: must be from 1 to {MAX_PARTITIONS}")
    topic = log.run(_find_or_make(log.log, name, partitions, configs))
    if len(topic.partitions) != partitions:
        raise ConfigError(
            f"topic {name!r} is there already, with {len(topic.partitions)} partitions instead of "
            f"{partitions}; name another"
        )
    if not is_begun and any(one.next_offset for one in topic.partitions):
        raise ConfigError(
            f"topic {name!r} is there already, and has records of its own; name a new one"
        )


async def _find_or_make(
    log: DirectLog, name: str, partitions: int, configs: Mapping[str, str]
) -> Topic:
    state = await log.barrier()
    is_there = name in state.topics.by_name
    await find_target(log, name, partitions)
    if not is_there and configs:
        changes = [ConfigChange(name=key, value=value) for key, value in sorted(configs.items())]
        event = ConfigsChanged(resource_type=_TOPIC, resource_name=name, changes=changes)
        await log.propose([event])
    return log.state.topics.by_name[name]
