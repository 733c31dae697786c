"""Opens the storage that the settings name: our own, or Kafka's directory."""

from __future__ import annotations

from rookery.broker.directory import DirectoryStorage
from rookery.broker.settings import BrokerSettings
from rookery.broker.storage import Storage

AnyStorage = Storage | DirectoryStorage


def open_storage(settings: BrokerSettings) -> AnyStorage:
    """Open it.

    Raises:
        ConfigError: a setting cannot be used, or two contradict each other.
        Unavailable: something is out of reach.
    """
    return DirectoryStorage(settings) if settings.log_dir else Storage(settings)
