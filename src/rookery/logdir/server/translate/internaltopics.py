"""Kafka's internal topics for offsets and transactions, which are created on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from rookery.clock import Random
from rookery.cluster.events import groupevents, txnevents
from rookery.cluster.events.brokerevents import SettingChange
from rookery.cluster.events.topicevents import TopicCreated
from rookery.cluster.replica import Replica
from rookery.cluster.state.state import Outcome
from rookery.model.topicname import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from rookery.model.uuid import random_uuid
from rookery.wire.message import Message

_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": "104857600",
}
_OFFSETS: Final = (
    groupevents.OffsetsCommitted,
    groupevents.OffsetsPublished,
    txnevents.OffsetsAddedToTransaction,
    txnevents.TransactionOffsetsCommitted,
)
_TRANSACTIONS: Final = (txnevents.TransactionInitialised,)


class InternalTopics:
    """Creates Kafka's internal topics before something is stored in them."""

    def __init__(self, replica: Replica, random: Random, partitions: Mapping[str, int]) -> None:
        """Register for the replica's proposals.

        Args:
            replica: knows the existing topics, and proposes the missing ones.
            random: generates topic ids.
            partitions: the number of partitions of each topic; topics that are not named are not
                created.
        """
        self._replica = replica
        self._random = random
        self._absent = dict(partitions)
        replica.before_propose = self._create_for

    def _create_for(self, events: Sequence[Message]) -> None:
        """Propose the topics that events need, before the events."""
        for name in self._absent and _find_needed(events):
            count = self._absent.pop(name, 0)
            if count and name not in self._replica.state.topics.by_name:
                created = self._replica.propose([self._topic(name, count)])
                created.add_done_callback(_retrieve_error)

    def _topic(self, name: str, count: int) -> TopicCreated:
        return TopicCreated(
            topic_id=random_uuid(self._random.token),
            name=name,
            partitions=count,
            replication_factor=1,
            configs=[SettingChange(name=key, value=value) for key, value in _CONFIGS.items()],
        )


def _find_needed(events: Sequence[Message]) -> set[str]:
    needed = set()
    for event in events:
        if isinstance(event, _OFFSETS):
            needed.add(OFFSETS_TOPIC)
        elif isinstance(event, _TRANSACTIONS):
            needed.add(TRANSACTIONS_TOPIC)
    return needed


def _retrieve_error(created: asyncio.Future[list[Outcome]]) -> None:
    """Keep asyncio from reporting a failure: the events that follow fail for the same reason."""
    if not created.cancelled():
        created.exception()
