"""Writes topics and settings into `__cluster_metadata`, and makes and removes partition folders."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from rookery.cluster.events import brokerevents, topicevents
from rookery.cluster.state.outcome import Outcome
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.formats.logfile.names import FolderName, Stage
from rookery.logdir.server.limits import SegmentLimits
from rookery.logdir.server.loadeddirectory import LoadedDirectory
from rookery.logdir.server.translate.kraft import MetadataWriter
from rookery.logdir.server.translate.work import EventWriters, Work
from rookery.logdir.server.trash import Trash
from rookery.logdir.writer.appendlog import AppendLog
from rookery.model.partition import TopicPartition
from rookery.model.uuid import uuid_text

logger = logging.getLogger(__name__)

_FOLDER_DELAY_MS: Final = 60_000
"""The delay before a deleted topic's folder is removed: Kafka's default of file.delete.delay.ms."""


class TopicScribe:
    """Translates events that change topics and settings."""

    def __init__(
        self,
        loaded: LoadedDirectory,
        metadata: MetadataWriter,
        limits: Callable[[State, Topic], SegmentLimits],
        trash: Trash,
    ) -> None:
        """Start with the loaded directory.

        Args:
            loaded: the directory and its state.
            metadata: writes the cluster's metadata.
            limits: decides when deleted segments are removed.
            trash: takes renamed files and folders, and deletes them later.
        """
        self._loaded = loaded
        self._state = loaded.state
        self._logs = loaded.logs
        self._metadata = metadata
        self._limits = limits
        self._trash = trash
        self.writers: EventWriters = {
            topicevents.TopicCreated: self._create,
            topicevents.PartitionsAdded: self._grow,
            topicevents.TopicDeleted: self._delete,
            topicevents.LogStartMoved: self._log_start,
            brokerevents.ConfigsChanged: self._configure,
        }

    def make_logs(self, work: Work, topic_id: bytes, name: str, indexes: Iterable[int]) -> None:
        """Create the logs of partitions."""
        folder = self._loaded.directory.paths[0]
        for index in indexes:
            place = TopicPartition(name, index)
            log = AppendLog(folder / place.text, place, topic_id, self._loaded.files.number)
            self._logs[topic_id, index] = log
            work.before.append(log.make)

    def _create(self, work: Work, event: topicevents.TopicCreated, _: Outcome) -> None:
        work.records += self._metadata.encode_created(event)
        self.make_logs(work, event.topic_id, event.name, range(event.partitions))

    def _grow(self, work: Work, event: topicevents.PartitionsAdded, _: Outcome) -> None:
        topic = self._state.topics.by_id[event.topic_id]
        new = [
            index
            for index in range(event.partitions)
            if (topic.id, index) not in self._logs
            and (topic.id, index) not in self._loaded.elsewhere
        ]
        work.records += self._metadata.partitions(topic.id, new)
        self.make_logs(work, topic.id, topic.name, new)

    def _delete(self, work: Work, event: topicevents.TopicDeleted, _: Outcome) -> None:
        work.records.append(self._metadata.encode_deleted(event.topic_id))
        for key in [key for key in self._logs if key[0] == event.topic_id]:
            gone = self._logs.pop(key)
            work.before.append(partial(_set_aside, gone))
            work.later.append(partial(self._remove, gone, work.now_ms + _FOLDER_DELAY_MS))
            work.batches.pop(key, None)
        self._loaded.elsewhere -= {
            key for key in self._loaded.elsewhere if key[0] == event.topic_id
        }

    def _remove(self, log: AppendLog, due_ms: int) -> None:
        """Schedule the deletion of a renamed partition."""
        for held in log.held:
            self._loaded.files.forget(held.object_id)
        self._trash.add(_aside(log), due_ms)

    def _configure(self, work: Work, event: brokerevents.ConfigsChanged, _: Outcome) -> None:
        work.records += self._metadata.encode_configs(event)

    def _log_start(self, work: Work, event: topicevents.LogStartMoved, _: Outcome) -> None:
        log = self._logs.get((event.topic_id, event.partition))
        partition = self._state.topics.partition(event.topic_id, event.partition)
        if log is not None and partition is not None:
            topic = self._state.topics.by_id[event.topic_id]
            due_ms = work.now_ms + self._limits(self._state, topic).file_delete_delay_ms
            work.later.append(partial(self._drop_before, log, partition.log_start, due_ms))
            work.moves_starts = True

    def _drop_before(self, log: AppendLog, offset: int, due_ms: int) -> None:
        for held, files in log.drop_before(offset):
            self._loaded.files.forget(held.object_id)
            for path in files:
                logger.info(
                    "%s is renamed to %s and will be deleted", path.with_suffix(""), path.name
                )
                self._trash.add(path, due_ms)


def _aside(log: AppendLog) -> Path:
    """Return the name of a partition's folder while its deletion is pending."""
    unique = uuid_text(log.topic_id).replace("-", "0").replace("_", "0")
    return log.folder.with_name(FolderName(log.name, Stage.DELETE, unique).text)


def _set_aside(log: AppendLog) -> None:
    """Rename a partition's folder, so that a partial one never counts and its name is free."""
    log.close()
    if log.folder.exists():
        log.folder.rename(_aside(log))
