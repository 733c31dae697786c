"""Rookery: a Kafka-compatible streaming platform that stores its log in object storage."""

from importlib import import_module

__all__ = ["Checkpoint", "Offsets", "OrderedStream", "Spill", "follow", "read", "replay"]

_HOMES = {
    "read": "api",
    "replay": "api",
    "follow": "api",
    "Checkpoint": "checkpoint",
    "Offsets": "positions",
    "Spill": "settings",
    "OrderedStream": "stream",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that commands do not load Arrow."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rookery' has no attribute {name!r}")
    return getattr(import_module(f"rookery.consumer.{_HOMES[name]}"), name)
