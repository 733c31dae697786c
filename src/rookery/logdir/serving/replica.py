"""The replica of a directory's state: it learns where batches lie, and Kafka's own topics exist."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from rookery.clock import Clock, Random
from rookery.cluster.entry import Entry
from rookery.cluster.events import groups as group_events
from rookery.cluster.events import txns as txn_events
from rookery.cluster.events.brokers import ConfigChange
from rookery.cluster.events.topics import TopicCreated
from rookery.cluster.replica import Replica
from rookery.cluster.state.state import Applied, Outcome
from rookery.log import markers
from rookery.log.tail import Tail
from rookery.logdir.serving.clusterlog import DirectoryLog
from rookery.model.topicname import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from rookery.wire.buffer import Buffer
from rookery.wire.message import Message

_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": "104857600",
}
_OFFSETS: Final = (
    group_events.OffsetsCommitted,
    group_events.OffsetsPublished,
    txn_events.OffsetsAddedToTransaction,
    txn_events.TransactionOffsetsCommitted,
)
_TRANSACTIONS: Final = (txn_events.TransactionInitialised,)


class DirectoryReplica(Replica):
    """A replica that makes Kafka's own topics when something is about to be kept in them."""

    def __init__(
        self, cluster_log: DirectoryLog, clock: Clock, random: Random, partitions: dict[str, int]
    ) -> None:
        """Begin with an empty state; `open` brings it up to date.

        Args:
            cluster_log: what is followed.
            clock: stamps the entries.
            random: draws the ids of topics.
            partitions: how many each of Kafka's own topics gets; none is made that is not named.
        """
        super().__init__(cluster_log, clock, cluster_log.snapshot)
        self._directory_log = cluster_log
        self._random = random
        self._wanted = dict(partitions)
        self._tail: Tail | None = None
        self.listen(self._applied)

    def remember_in(self, tail: Tail) -> None:
        """Have markers put behind the batches that are kept in memory."""
        self._tail = tail

    def _applied(self, applied: Applied, _entry: Entry) -> None:
        # Before they are placed: then they are rows of files like any other.
        for key in applied.marked if self._tail is not None else ():
            partition = self.state.topics.partition(*key)
            if partition is not None and self._tail is not None:
                markers.keep(self._tail, key, partition)
        self._directory_log.applied(self.state, applied)

    def propose(
        self, events: Sequence[Message], payload: Sequence[Buffer] = ()
    ) -> asyncio.Future[list[Outcome]]:
        """Put events into the next entry, behind the topics that they need."""
        for name in self._wanted and _needed(events):
            count = self._wanted.pop(name, 0)
            if count and name not in self.state.topics.by_name:
                made = super().propose([self._topic(name, count)])
                made.add_done_callback(_look_at)
        return super().propose(events, payload)

    def _topic(self, name: str, count: int) -> TopicCreated:
        return TopicCreated(
            topic_id=self._random.token(16),
            name=name,
            partitions=count,
            replication_factor=1,
            configs=[ConfigChange(name=key, value=value) for key, value in _CONFIGS.items()],
        )


def _needed(events: Sequence[Message]) -> set[str]:
    needed = set()
    for event in events:
        if isinstance(event, _OFFSETS):
            needed.add(OFFSETS_TOPIC)
        elif isinstance(event, _TRANSACTIONS):
            needed.add(TRANSACTIONS_TOPIC)
    return needed


def _look_at(done: asyncio.Future[list[Outcome]]) -> None:
    """Take notice of a failure; what was to be kept there fails, too."""
    if not done.cancelled():
        done.exception()
