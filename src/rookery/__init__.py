"""Rookery: a Kafka-compatible streaming platform whose log lives in object storage."""

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
    """Import a public name when it is first used: commands shall not pay for Arrow."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rookery' has no attribute {name!r}")
    return getattr(import_module(f"rookery.consumer.{_HOMES[name]}"), name)
