"""Validation of new topics: names, partitions and replication factors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from rookery.broker.call import Services
from rookery.broker.config.configs import check_topic
from rookery.cluster.events.brokerevents import SettingChange
from rookery.cluster.events.topicevents import TopicCreated
from rookery.cluster.state.topics import Topics
from rookery.errors import ApiError, ErrorCode
from rookery.model.topicname import RESERVED_TOPICS
from rookery.model.uuid import random_uuid

MAX_NAME: Final = 249
MAX_PARTITIONS: Final = 10_000
"""The maximum number of partitions per request, since each costs memory on every broker."""
MAX_REPLICATION_FACTOR: Final = 100
"""It is only reported, never used, but makes every response about the topic longer."""
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Refuse a name that Kafka would refuse.

    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION, with the rule that was broken.
    """
    if name in {"", ".", ".."} or len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{name[:300]!r} is not a topic name: use 1 to {MAX_NAME} of a-z, A-Z, 0-9, '.', '_', "
            "'-', and neither '.' nor '..'",
        )


def check_reserved(name: str) -> None:
    """Refuse to create a topic with a name that Kafka reserves.

    Raises:
        ApiError: INVALID_REQUEST, as Kafka answers for `__cluster_metadata`.
    """
    if name in RESERVED_TOPICS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
        )


def check_partitions(count: int) -> None:
    """Refuse a number of partitions that is out of range."""
    if not 1 <= count <= MAX_PARTITIONS:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS, f"{count} partitions: use 1 to {MAX_PARTITIONS}"
        )


def check_alike(topics: Topics, name: str) -> None:
    """Refuse a name that differs from that of another topic only by '.' and '_'.

    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION, with the other name.
    """
    other = topics.alike(name)
    if other not in {None, name}:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other}",
        )


def new_topic(
    services: Services,
    name: str,
    partitions: int = -1,
    replication_factor: int = -1,
    configs: Mapping[str, str | None] | None = None,
) -> TopicCreated:
    """Return the event that creates a topic; -1 means the broker's default.

    Raises:
        ApiError: the topic is invalid.
    """
    check_name(name)
    check_reserved(name)
    count = services.settings.partitions if partitions == -1 else partitions
    check_partitions(count)
    if replication_factor != -1 and not 1 <= replication_factor <= MAX_REPLICATION_FACTOR:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a replication factor of {replication_factor}: use 1 to {MAX_REPLICATION_FACTOR}, "
            "or -1 for the default",
        )
    return TopicCreated(
        topic_id=random_uuid(services.random.token),
        name=name,
        partitions=count,
        replication_factor=1 if replication_factor == -1 else replication_factor,
        configs=[
            SettingChange(name=key, value=value)
            for key, value in check_topic(configs or {}).items()
        ],
    )
