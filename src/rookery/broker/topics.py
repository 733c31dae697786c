"""Making topics: what a name, a number of partitions and settings must be like."""

from __future__ import annotations

import re
from typing import Final

from rookery.broker.call import Services
from rookery.cluster.events.brokers import ConfigChange
from rookery.cluster.events.topics import TopicCreated
from rookery.errors import ApiError, ErrorCode

MAX_NAME: Final = 249
MAX_PARTITIONS: Final = 10_000
"""Partitions that one request may bring to one topic: each costs memory on every broker."""
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Refuse a name that Kafka would refuse.

    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION, with the rule that was broken.
    """
    if name in {"", ".", ".."} or len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{name[:300]!r} is no topic name: 1 to {MAX_NAME} of a-z, A-Z, 0-9, '.', '_', '-', "
            "and neither '.' nor '..'",
        )


def check_partitions(count: int) -> None:
    """Refuse a number of partitions that nobody can want."""
    if not 1 <= count <= MAX_PARTITIONS:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS, f"{count} partitions: from 1 to {MAX_PARTITIONS}"
        )


def new_topic(
    services: Services,
    name: str,
    partitions: int = -1,
    replication_factor: int = -1,
    configs: dict[str, str | None] | None = None,
) -> TopicCreated:
    """Make the event that makes a topic; -1 stands for the broker's default."""
    check_name(name)
    count = services.settings.partitions if partitions == -1 else partitions
    check_partitions(count)
    if replication_factor != -1 and replication_factor < 1:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a replication factor of {replication_factor}: 1 or more, or -1 for the default",
        )
    return TopicCreated(
        topic_id=services.random.token(16),
        name=name,
        partitions=count,
        replication_factor=1 if replication_factor == -1 else replication_factor,
        configs=[ConfigChange(name=key, value=value) for key, value in (configs or {}).items()],
    )
