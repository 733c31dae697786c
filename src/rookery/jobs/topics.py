"""The topics that jobs write to: made as asked for, or found as they were left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rookery.cluster.state.topics import Topic
from rookery.direct.blockinglog import BlockingLog
from rookery.direct.log import DirectLog
from rookery.direct.targets import MAX_PARTITIONS, find_target
from rookery.errors import ConfigError

_TIMES: Final = "message.timestamp.type"


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
    await find_target(log, name, partitions, configs=configs)
    return log.state.topics.by_name[name]
