"""Maintenance of our own objects: builds the caretaker and verifies its snapshots.

A broker uses it in its own process (`caretaker="inline"`); the caretaker process uses it too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rookery.broker.config.configs import TopicConfigs
from rookery.broker.settings import BrokerSettings
from rookery.broker.storage.backing import TopicConfigsOf
from rookery.clock import Clock
from rookery.cluster.replica import Replica
from rookery.cluster.state.topics import Topic
from rookery.log.compaction.compactor import Compactor
from rookery.log.maintain import snapshots
from rookery.log.maintain.bins import ObjectBin
from rookery.log.maintain.caretaker import Caretaker
from rookery.log.maintain.retention import Retention
from rookery.log.maintain.rewriter import Rewriter
from rookery.log.maintain.sweeper import Sweeper
from rookery.log.origin import Handles, LogLocation
from rookery.log.read.objects import EntryReader


def snapshot_entries(settings: BrokerSettings, origin: LogLocation) -> int:
    """Return the number of entries between snapshots; lower if replaying them is slow."""
    return min(
        settings.snapshot_entries,
        origin.log_traits.max_replay_entries or settings.snapshot_entries,
    )


class ObjectMaintenance:
    """Maintenance of a log whose state a replica follows."""

    def __init__(
        self,
        handles: Handles,
        settings: BrokerSettings,
        replica: Replica,
        clock: Clock,
        topic_configs: TopicConfigsOf,
    ) -> None:
        self._handles = handles
        self._settings = settings
        self._replica = replica
        self._clock = clock
        self._topic_configs = topic_configs

    def caretaker(self, next_id: Callable[[], int]) -> Caretaker:
        """Return a caretaker that works under the incarnation of its process."""
        settings, handles = self._settings, self._handles
        replica, clock = self._replica, self._clock
        store, namespace = handles.store, handles.namespace
        read = EntryReader(handles.cluster_log, handles.places(lambda: replica.state).read).read
        entries = snapshot_entries(settings, handles.origin)
        care = replace(settings.care(), snapshot_entries=entries)
        caretaker = Caretaker(replica, handles.cluster_log, store, clock, care)
        caretaker.employ(
            Retention(replica, clock, self._configs),
            Sweeper(
                replica,
                ObjectBin(handles.journals, store, lambda: replica.state, namespace),
                clock,
                settings.delete_delay_ms,
                settings.orphan_interval_ms,
            ),
            Rewriter(
                replica=replica,
                read=read,
                store=store,
                clock=clock,
                next_id=next_id,
                namespace=namespace,
                settings=settings.rewrite,
                segment_ms=lambda topic: self._configs(topic).segment_ms,
            ),
            Compactor(
                replica=replica,
                read=read,
                store=store,
                clock=clock,
                next_id=next_id,
                limits=self._configs,
                namespace=namespace,
                rewrite=settings.rewrite,
                settings=settings.compaction,
            ),
        )
        return caretaker

    async def agrees(self, snapshot: int) -> bool:
        """Read a snapshot back and compare it with the state applied by this process."""
        await self._replica.barrier()
        digest = self._replica.digest_at(snapshot)
        return await snapshots.agrees(self._handles.store, snapshot, digest)

    def _configs(self, topic: Topic) -> TopicConfigs:
        return self._topic_configs(self._replica.state, topic)
