"""Kafka's own data directory as what a broker's log lies in; the counterpart of `storage.py`.

The directory is read once and becomes a state; from then on every entry of its cluster log is
written into Kafka's files (`rookery.logdir.serving`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rookery.broker import configs
from rookery.broker.settings import BrokerSettings
from rookery.broker.storage import Reading
from rookery.broker.topiccache import TopicCache
from rookery.clock import Clock, SystemClock, SystemRandom
from rookery.cluster.replica import Replica
from rookery.errors import ConfigError
from rookery.log.cache import BlockCache
from rookery.log.caretaker import Caretaker
from rookery.log.medium import FlushSettings, Medium
from rookery.log.reader import Reader
from rookery.log.retention import Retention
from rookery.log.tail import Tail
from rookery.log.uploads import Numbers
from rookery.logdir.serving.replica import DirectoryReplica
from rookery.logdir.serving.retention import describe
from rookery.logdir.serving.service import DirectoryService, Options
from rookery.model.topicname import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from rookery.service.periodic import PeriodicTasks
from rookery.store.pending import PendingCalls
from rookery.wire.messages.update_features import UPDATE_FEATURES

log = logging.getLogger(__name__)

_CHECKPOINT_MS: Final = 5_000
_WEEK_MS: Final = "604800000"
_UNBOUNDED: Final = "-1"


class DirectoryStorage:
    """A log directory that this process has to itself."""

    is_local = True
    has_caretaker = False
    files = None
    hidden = frozenset({UPDATE_FEATURES.key})
    """The levels of Kafka's features are for its controllers to change."""
    dependencies: Mapping[str, PendingCalls] = {}

    def __init__(self, settings: BrokerSettings) -> None:
        """Read the directory, put it in order, and begin.

        Raises:
            ConfigError: there is no such directory, or another process has it.
        """
        if settings.store or settings.cluster or settings.workers > 1:
            raise ConfigError(
                "log-dir: a directory of Kafka's has one broker of one process to itself; leave "
                "out --store, --cluster and --workers"
            )
        paths = [Path(part.strip()).absolute() for part in settings.log_dir.split(",")]
        defaults = configs.parse_defaults(settings.defaults)
        is_confirmed = settings.confirm_retention or _sets_retention(defaults)
        options = Options(
            now_ms=SystemClock().now_ms(),
            node_id=settings.node_id,
            is_read_only=settings.read_only,
            durability=settings.durability,
            defaults=defaults,
            is_retention_confirmed=is_confirmed,
        )
        self.service = DirectoryService(paths, options, TopicCache(configs.resolve).of)
        self.cluster_log = self.service.cluster_log
        self.folder = paths[0]
        self.node_id = self.service.loaded.node_id
        self._settings = settings
        for remark in self.service.remarks():
            log.warning("%s", remark)
        self.expires_offsets = is_confirmed
        if not settings.read_only:
            self._announce_retention(options.now_ms)

    def _announce_retention(self, now_ms: int) -> None:
        overdue = self.service.retention.overdue(now_ms)
        seconds = self._settings.upkeep_interval_ms // 1000
        if not self.service.options.is_retention_confirmed:
            log.warning(
                "retention is held: topics that were in the directory keep their records%s, and "
                "groups their offsets; start with --confirm-retention, or set log.retention.ms or "
                "log.retention.bytes in server.properties to other than Kafka's default, and "
                "retention deletes them",
                f", of which {describe(overdue)} are past it" if overdue else "",
            )
        elif overdue:
            log.warning(
                "retention deletes %s in %d seconds; stop the broker, or start it with "
                "--read-only, to keep them",
                describe(overdue),
                seconds,
            )

    def replica(self, clock: Clock) -> Replica:
        """Return a copy of the state that follows the directory's log, not opened yet."""
        settings = self._settings
        partitions = {
            OFFSETS_TOPIC: settings.offsets_topic_partitions,
            TRANSACTIONS_TOPIC: settings.transactions_topic_partitions,
        }
        if settings.read_only:
            partitions = {}
        return DirectoryReplica(self.service.cluster_log, clock, SystemRandom(), partitions)

    def reading(self, _settings: BrokerSettings, replica: Replica, tail: Tail) -> Reading:
        """Return what reads the log: the files, without a cache of ours before them."""
        if isinstance(replica, DirectoryReplica):
            replica.remember_in(tail)
        files = self.service.loaded.files
        reader = Reader(self.service.cluster_log, files, tail, files.read)
        return Reading(reader, BlockCache(files.read, name=files.name), None)

    def medium(
        self, _settings: BrokerSettings, _replica: Replica, _clock: Clock, _numbers: Numbers
    ) -> Medium:
        """Return where flushes wait until they are written."""
        return self.service.medium

    def flush_settings(self, _settings: BrokerSettings) -> FlushSettings:
        """Return how much is flushed together; nothing rides in entries."""
        return FlushSettings(inline_bytes=0)

    async def ask_store(self) -> None:
        """Ask nothing: there is no store."""

    async def check(self) -> None:
        """Find nothing wrong: the directory was looked at when it was opened."""

    async def owner(self) -> str | None:
        """Return the cluster's id."""
        return self.service.loaded.state.cluster_id

    @staticmethod
    def foreign(owner: str | None, cluster_id: str) -> ConfigError:
        """Return the error for a directory of another cluster."""
        return ConfigError(f"log-dir: it is of cluster {owner}, not of {cluster_id}")

    async def claim(self, cluster_id: str) -> None:
        """Mark nothing: the directory says whose it is."""

    async def shorten_next_start(self, replica: Replica) -> None:
        """Write nothing: Kafka's files are what a start reads."""

    async def agrees(self, _replica: Replica, _snapshot: int) -> bool:
        """Know of no snapshots."""
        return False

    def caretaker(self, *_: object) -> Caretaker:
        """Refuse: there are no objects to take care of."""
        raise ConfigError("caretaker: there is none for a log directory; leave it out")

    def node_lock(self, _cluster_id: str) -> tuple[Path | None, str]:
        """Return no file: the directory has one broker, and a lock of its own."""
        return None, ""

    async def begin(self, replica: Replica) -> None:
        """End the transactions whose end was decided before the last stop."""
        for event in self.service.unfinished():
            await replica.propose([event])

    def employ(self, tasks: PeriodicTasks, replica: Replica, clock: Clock) -> None:
        """Have checkpoints written and old segments deleted, now and then."""
        if self.service.is_read_only:
            return

        topic_configs = TopicCache(configs.resolve).of
        retention = Retention(replica, clock, lambda topic: topic_configs(replica.state, topic))

        async def checkpoint() -> None:
            await asyncio.to_thread(self.service.checkpoint)

        async def retain() -> None:
            await asyncio.to_thread(self.service.empty_trash, clock.now_ms())
            overdue = self.service.retention.overdue(clock.now_ms())
            for one in (one for one in overdue if not one.is_held):
                log.info("retention: %s", describe([one]))
                await replica.propose([one.event])
            await retention.expire_producers(self._settings.producer_expiration_ms)

        tasks.every(_CHECKPOINT_MS, "checkpoints of the directory", checkpoint)
        tasks.every(self._settings.upkeep_interval_ms, "retention of segments", retain)

    async def close(self) -> None:
        """Leave the directory as Kafka does when it is stopped in order."""
        await self.service.close()


def _sets_retention(defaults: Mapping[str, str]) -> bool:
    """Return whether a retention was chosen: the file that Kafka ships names its default."""
    chosen = defaults.get("log.retention.ms", _WEEK_MS) not in {_WEEK_MS, _UNBOUNDED}
    return chosen or defaults.get("log.retention.bytes", _UNBOUNDED) != _UNBOUNDED
