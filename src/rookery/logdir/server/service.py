"""The service of a log directory: opens, repairs, writes and maintains it, and closes it cleanly.

lock ──► read ──► repair ──► lead its partitions ──► serve ──► complete, checkpoint, unlock
             └── read-only: nothing is written, not even a lock ──► serve
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rookery.cluster.events.txnevents import TransactionEnded
from rookery.cluster.port import Durability
from rookery.errors import ConfigError
from rookery.logdir.directory import LogDirectory
from rookery.logdir.server.checkpoints import TopFiles
from rookery.logdir.server.clusterlog import DirectoryLog
from rookery.logdir.server.directorylock import DirectoryLock
from rookery.logdir.server.directorytarget import DirectoryTarget, Stash
from rookery.logdir.server.limits import LimitsOf
from rookery.logdir.server.loadeddirectory import load
from rookery.logdir.server.repair import repair
from rookery.logdir.server.retention import SegmentRetention
from rookery.logdir.server.swaps import settle_swaps
from rookery.logdir.server.translate.kraft import MetadataWriter, lead, metadata_log
from rookery.logdir.server.translate.scribe import Scribe
from rookery.logdir.server.trash import Trash
from rookery.wire.message import Message

log = logging.getLogger(__name__)

_FIRST_NODE: Final = 1


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """The options for serving a directory."""

    now_ms: int
    """The time for records that are written before the directory is served."""
    node_id: int = -1
    """-1: the node id in the directory."""
    is_read_only: bool = False
    durability: Durability = "disk"
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Defaults from Kafka's own file for topics without a setting, such as `log.retention.ms`."""
    is_retention_confirmed: bool = True
    """Whether existing data may be deleted."""


class DirectoryService:
    """One broker's directories while they are served."""

    def __init__(self, paths: Sequence[Path], options: ServiceOptions, limits: LimitsOf) -> None:
        """Lock, read and repair the directories.

        Raises:
            ConfigError: a path is not a log directory, or another process uses it.
        """
        for path in paths:
            if not path.is_dir():
                raise ConfigError(f"log-dir: there is no directory {path}")
        self.options = options
        self._limits = limits
        self._lock = DirectoryLock(paths, is_shared=options.is_read_only)
        try:
            self._open(paths, options)
        except BaseException:
            self._lock.close()
            raise

    def _open(self, paths: Sequence[Path], options: ServiceOptions) -> None:
        if not options.is_read_only:
            settle_swaps(paths)
        directory = LogDirectory.open(paths)
        for damage in directory.damage:
            log.warning("%s", damage.text)
        self.loaded = loaded = load(directory, _node_id(directory, options.node_id), options.now_ms)
        loaded.state.broker_configs[""] = {
            **options.defaults,
            **loaded.state.broker_configs.get("", {}),
        }
        self._stash = Stash()
        self._trash = Trash()
        self.retention = SegmentRetention(
            loaded, self._limits, is_confirmed=options.is_retention_confirmed
        )
        self.flush_target = DirectoryTarget(self._stash, is_read_only=options.is_read_only)
        self._scribe: Scribe | None = None
        self._top: TopFiles | None = None
        if not options.is_read_only:
            self._prepare()
        self.cluster_log = DirectoryLog(loaded, self._scribe, self.flush_target, options.durability)

    def _prepare(self) -> None:
        """Repair the directory and take leadership, before anything is served."""
        loaded = self.loaded
        self._metadata = MetadataWriter(loaded, metadata_log(loaded))
        self._top = TopFiles(loaded, self._metadata.broker_epoch)
        self._top.begin()
        repair(loaded, deletes=self.options.is_retention_confirmed)
        lead(loaded, self._metadata)
        self._scribe = Scribe(loaded, self._stash, self._metadata, self._limits, self._trash)
        self._scribe.write_starts = self._top.write_starts

    @property
    def is_read_only(self) -> bool:
        """Whether nothing is written."""
        return self.options.is_read_only

    def remarks(self) -> Iterator[str]:
        """Yield remarks for the user about the served directory."""
        directory, loaded = self.loaded.directory, self.loaded
        others = sorted(set(directory.image.brokers) - {loaded.node_id})
        if others or loaded.elsewhere:
            yield (
                f"this is the disk of node {loaded.node_id} of a cluster with others "
                f"({', '.join(map(str, others)) or 'unknown'}): it is shown as the only one, and "
                f"leads the partitions on this disk; {len(loaded.elsewhere)} others are not on it"
            )
        if loaded.beyond:
            yield (
                f"{len(loaded.beyond)} partitions have records beyond the high watermark, which "
                "the other brokers may not have: they are not shown"
            )
        if not directory.is_clean:
            yield "the directory was not closed in order: its newest segments were checked"
        if self.is_read_only:
            yield "read-only: nothing is written; groups and their offsets live in memory only"

    # Periodic work.

    def take_unfinished(self) -> list[Message]:
        """Return the events that finish transactions with a decided but unwritten end."""
        events: list[Message] = []
        for transactional_id, is_commit in self.loaded.prepared.items():
            transaction = self.loaded.state.transactions.by_id[transactional_id]
            events.append(
                TransactionEnded(
                    transactional_id=transactional_id,
                    producer_id=transaction.writer.producer_id,
                    producer_epoch=transaction.writer.epoch,
                    is_commit=is_commit,
                )
            )
        self.loaded.prepared = {}
        return [] if self.is_read_only else events

    def empty_trash(self, now_ms: int) -> None:
        """Delete the renamed files whose delay has passed.

        Raises:
            OSError: a file could not be deleted.
        """
        self._trash.empty(now_ms)

    def checkpoint(self) -> None:
        """Write the checkpoints of all logs."""
        if self._top is not None:
            self._top.write()

    async def close(self) -> None:
        """Leave the directory as a clean shutdown of Kafka does."""
        await self.cluster_log.close()
        await self.loaded.files.close()
        if self._top is not None:
            for append_log in (self._metadata.log, *self.loaded.logs.values()):
                append_log.finish()
            self._top.end()
        self._lock.close()


def _node_id(directory: LogDirectory, wanted: int) -> int:
    stored = directory.meta.node_id if directory.meta is not None else -1
    if wanted >= 0 and stored >= 0 and wanted != stored:
        raise ConfigError(
            f"node-id: the directory is that of node {stored}, not of {wanted}; leave --node-id out"
        )
    return next((node_id for node_id in (wanted, stored) if node_id >= 0), _FIRST_NODE)
