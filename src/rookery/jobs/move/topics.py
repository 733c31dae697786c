"""The target topics of jobs: created on request, or found from an earlier run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rookery.cluster.state.topics import Topic
from rookery.direct.blockinglog import BlockingLog
from rookery.direct.log import DirectLog
from rookery.direct.targets import MAX_PARTITIONS, find_target
from rookery.errors import ConfigError

_TIMES: Final = "message.timestamp.type"


def select_configs(topic: Topic) -> dict[str, str]:
    """Return the settings for the copy of a topic: all except the timestamp type.

    The records of a copy keep their timestamps, whatever their source.
    """
    return {name: value for name, value in topic.configs.items() if name != _TIMES}


def make_topic(
    log: BlockingLog, name: str, partitions: int, configs: Mapping[str, str], *, is_begun: bool
) -> None:
    """Create a topic for a job, unless the job has already started with it.

    Args:
        log: the log of its cluster.
        name: the name of the topic.
        partitions: the number of partitions.
        configs: its settings.
        is_begun: whether the job has run before; otherwise a topic with that name must be empty.

    Raises:
        ConfigError: it has another number of partitions, or records of its own.
        ApiError: the name is not valid.
    """
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise ConfigError(f"{partitions} partitions: must be from 1 to {MAX_PARTITIONS}")
    topic = log.run(_find_or_make(log.log, name, partitions, configs))
    if len(topic.partitions) != partitions:
        raise ConfigError(
            f"topic {name!r} already exists, with {len(topic.partitions)} partitions instead of "
            f"{partitions}; name another"
        )
    if not is_begun and any(partition.next_offset for partition in topic.partitions):
        raise ConfigError(
            f"topic {name!r} already exists, and has records of its own; name a new one"
        )


async def _find_or_make(
    log: DirectLog, name: str, partitions: int, configs: Mapping[str, str]
) -> Topic:
    await find_target(log, name, partitions, configs=configs)
    return log.state.topics.by_name[name]
