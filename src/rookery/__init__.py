"""Rookery: a Kafka-compatible streaming platform that stores its log in object storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookery.exports import lazy_exports

if TYPE_CHECKING:
    from rookery.consumer.api import follow, read, replay
    from rookery.consumer.checkpoint import Checkpoint
    from rookery.consumer.positions import Offsets
    from rookery.consumer.settings import Spill
    from rookery.consumer.stream import OrderedStream
    from rookery.direct.place import ClusterAddress
    from rookery.errors import (
        ApiError,
        ConfigError,
        Conflict,
        Corrupt,
        Error,
        ErrorCode,
        Gone,
        ProtocolError,
        Unavailable,
    )

__all__ = [
    "ApiError",
    "Checkpoint",
    "ClusterAddress",
    "ConfigError",
    "Conflict",
    "Corrupt",
    "Error",
    "ErrorCode",
    "Gone",
    "Offsets",
    "OrderedStream",
    "ProtocolError",
    "Spill",
    "Unavailable",
    "follow",
    "read",
    "replay",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "rookery.consumer.api": ["follow", "read", "replay"],
            "rookery.consumer.checkpoint": ["Checkpoint"],
            "rookery.consumer.positions": ["Offsets"],
            "rookery.consumer.settings": ["Spill"],
            "rookery.consumer.stream": ["OrderedStream"],
            "rookery.direct.place": ["ClusterAddress"],
            "rookery.errors": [
                "ApiError",
                "ConfigError",
                "Conflict",
                "Corrupt",
                "Error",
                "ErrorCode",
                "Gone",
                "ProtocolError",
                "Unavailable",
            ],
        },
    )
