"""The backing for Kafka's own data directory.

The directory is read once and converted into a state. From then on, every entry of its cluster log
is written to Kafka's files (`rookery.logdir.server`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rookery.broker.config import configs
from rookery.broker.config.configs import TopicCache
from rookery.broker.process.nodelock import NodeLock
from rookery.broker.settings import BrokerSettings
from rookery.broker.storage.backing import BackingTraits, TopicConfigsOf
from rookery.clock import Clock, Random, SystemClock, SystemRandom
from rookery.cluster.entry import Entry
from rookery.cluster.numbers import Numbers
from rookery.cluster.replica import Replica
from rookery.cluster.state.state import EntryOutcome
from rookery.errors import ConfigError
from rookery.log.maintain.retention import Retention
from rookery.log.read.reader import LogReader
from rookery.log.read.tail import Tail
from rookery.log.write import markers
from rookery.log.write.flushtarget import FlushSettings, FlushTarget
from rookery.logdir.server.retention import describe
from rookery.logdir.server.service import DirectoryService, ServiceOptions
from rookery.logdir.server.translate.internaltopics import InternalTopics
from rookery.model.topicname import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from rookery.service.periodic import PeriodicTasks
from rookery.service.stalls import Probe
from rookery.store.pendingcalls import PendingCalls
from rookery.wire.messages.update_features import UPDATE_FEATURES

log = logging.getLogger(__name__)

_CHECKPOINT_MS: Final = 5_000
_WEEK_MS: Final = "604800000"
_UNBOUNDED: Final = "-1"
# Only Kafka's controllers change its feature levels.
_HIDDEN_APIS: Final = frozenset({UPDATE_FEATURES.key})


class DirectoryBacking:
    """A log directory that only this process uses."""

    dependencies: Mapping[str, PendingCalls] = {}
    probes: Mapping[str, Probe] = {}
    cache = None
    maintenance = None

    def __init__(
        self, settings: BrokerSettings, clock: Clock, tail: Tail, topic_configs: TopicConfigsOf
    ) -> None:
        """Read the directory, repair it and start; `open_backing` documents the arguments.

        Raises:
            ConfigError: the directory does not exist, or another process uses it.
        """
        if settings.store or settings.cluster or settings.workers > 1:
            raise ConfigError(
                "log-dir: a Kafka data directory is served by exactly one broker process; omit "
                "--store, --cluster and --workers"
            )
        paths = [Path(part.strip()).absolute() for part in settings.log_dir.split(",")]
        defaults = configs.parse_defaults(settings.defaults)
        is_confirmed = settings.confirm_retention or _sets_retention(defaults)
        options = ServiceOptions(
            now_ms=SystemClock().now_ms(),
            node_id=settings.node_id,
            is_read_only=settings.read_only,
            durability=settings.durability,
            defaults=defaults,
            is_retention_confirmed=is_confirmed,
        )
        # The directory has its own state. Its topic versions differ from the replica's, so it
        # cannot share the replica's cache.
        self._service = service = DirectoryService(paths, options, TopicCache(configs.resolve).of)
        self._settings = settings
        self._clock = clock
        self._tail = tail
        self.traits = BackingTraits(
            is_on_this_host=True,
            node_id=service.loaded.node_id,
            flush=FlushSettings(inline_bytes=0),
            expires_offsets=is_confirmed,
            hidden_apis=_HIDDEN_APIS,
        )
        self.cluster_log = service.cluster_log
        self.replica = Replica(self.cluster_log, clock, self.cluster_log.snapshot)
        self.replica.listen(self._place)
        InternalTopics(self.replica, SystemRandom(), _internal_topics(settings))
        files = service.loaded.files
        self.reader = LogReader(self.cluster_log, files, tail, files.read)
        self._retention = Retention(
            self.replica, clock, lambda topic: topic_configs(self.replica.state, topic)
        )
        for remark in service.remarks():
            log.warning("%s", remark)
        if not settings.read_only:
            self._announce_retention(options.now_ms)

    def _announce_retention(self, now_ms: int) -> None:
        overdue = self._service.retention.find_overdue(now_ms)
        seconds = self._settings.upkeep_interval_ms // 1000
        if not self._service.options.is_retention_confirmed:
            log.warning(
                "retention is held: topics that were in the directory keep their records%s, and "
                "groups keep their offsets; to let retention delete them, start with "
                "--confirm-retention, or set log.retention.ms or log.retention.bytes in "
                "server.properties to a value other than Kafka's default",
                f", of which {describe(overdue)} have expired" if overdue else "",
            )
        elif overdue:
            log.warning(
                "retention deletes %s in %d seconds; stop the broker, or start it with "
                "--read-only, to keep them",
                describe(overdue),
                seconds,
            )

    def _place(self, applied: EntryOutcome, _entry: Entry) -> None:
        """Record in the replica which files hold the batches of an entry."""
        # This comes before the batches are placed, so that markers become rows of files like any
        # other.
        for key in applied.marked:
            partition = self.replica.state.topics.partition(*key)
            if partition is not None:
                markers.keep(self._tail, key, partition)
        self.cluster_log.set_locations(self.replica.state, applied)

    async def open(self, _new_cluster_id: Callable[[], str]) -> None:
        """Apply the loaded state; the directory contains the cluster id.

        Raises:
            ConfigError: it does not contain one.
        """
        await self.replica.open()
        if not self.replica.state.cluster_id:
            raise ConfigError(
                f"log-dir: {self._service.loaded.directory.paths[0]} has no cluster id; restore "
                "cluster.id in its meta.properties"
            )

    def node_lock(self, random: Random) -> NodeLock:
        """Return a lock without a file: the directory has one broker, and its own lock."""
        return NodeLock(None, "", random)

    def flush_target(self, _numbers: Numbers) -> FlushTarget:
        """Return the target in which flushes wait until they are written."""
        return self._service.flush_target

    async def start(self, tasks: PeriodicTasks) -> None:
        """End transactions whose end was decided before the last stop; start maintenance tasks."""
        for event in self._service.take_unfinished():
            await self.replica.propose([event])
        if not self._service.is_read_only:
            interval_ms = self._settings.upkeep_interval_ms
            tasks.every(_CHECKPOINT_MS, "checkpoints of the directory", self._checkpoint)
            tasks.every(interval_ms, "retention of segments", self._retain)

    async def _checkpoint(self) -> None:
        await asyncio.to_thread(self._service.checkpoint)

    async def _retain(self) -> None:
        await asyncio.to_thread(self._service.empty_trash, self._clock.now_ms())
        for overdue in self._service.retention.find_overdue(self._clock.now_ms()):
            if not overdue.is_held:
                log.info("retention: %s", describe([overdue]))
                await self.replica.propose([overdue.event])
        await self._retention.expire_producers(self._settings.producer_expiration_ms)

    async def close(self) -> None:
        """Leave the directory in the state that Kafka leaves after a clean shutdown."""
        await self._service.close()


def _internal_topics(settings: BrokerSettings) -> dict[str, int]:
    """Return the partition count of each of Kafka's internal topics; empty if read-only."""
    if settings.read_only:
        return {}
    return {
        OFFSETS_TOPIC: settings.offsets_topic_partitions,
        TRANSACTIONS_TOPIC: settings.transactions_topic_partitions,
    }


def _sets_retention(defaults: Mapping[str, str]) -> bool:
    """Return whether a retention was chosen: Kafka's stock file sets its default explicitly."""
    chosen = defaults.get("log.retention.ms", _WEEK_MS) not in {_WEEK_MS, _UNBOUNDED}
    return chosen or defaults.get("log.retention.bytes", _UNBOUNDED) != _UNBOUNDED
