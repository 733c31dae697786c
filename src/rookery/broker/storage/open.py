"""Opens the backing for the settings: our own objects, or Kafka's directory."""

from __future__ import annotations

from rookery.broker.settings import BrokerSettings
from rookery.broker.storage.backing import Backing, TopicConfigsOf
from rookery.broker.storage.directory import DirectoryBacking
from rookery.broker.storage.objectlog import ObjectLogBacking
from rookery.clock import Clock
from rookery.log.read.tail import Tail


def open_backing(
    settings: BrokerSettings, clock: Clock, tail: Tail, topic_configs: TopicConfigsOf
) -> Backing:
    """Open the backing for the settings.

    Args:
        settings: the broker's settings.
        clock: stamps entries.
        tail: the newest batches, which the reader serves from memory.
        topic_configs: returns the settings of topics of the backing's replica.

    Raises:
        ConfigError: a setting cannot be used, or two contradict each other.
        Unavailable: a dependency is unreachable.
    """
    if settings.log_dir:
        return DirectoryBacking(settings, clock, tail, topic_configs)
    return ObjectLogBacking(settings, clock, tail, topic_configs)
