"""Writes committed batches into the files of their partitions."""

from __future__ import annotations

from rookery.cluster.events import logevents
from rookery.cluster.state.outcome import Outcome
from rookery.errors import ErrorCode
from rookery.logdir.server.directorytarget import Stash
from rookery.logdir.server.loadeddirectory import LoadedDirectory
from rookery.logdir.server.translate.topicscribe import TopicScribe
from rookery.logdir.server.translate.work import EventWriters, Work
from rookery.logdir.writer.segmentfile import NewBatch
from rookery.records import batches


class BatchScribe:
    """Translates events about batches and their producers."""

    def __init__(self, loaded: LoadedDirectory, stash: Stash, topics: TopicScribe) -> None:
        """Start with the loaded directory.

        Args:
            loaded: the directory and its state.
            stash: batches that wait to be written.
            topics: creates the logs of partitions.
        """
        self._loaded = loaded
        self._state = loaded.state
        self._logs = loaded.logs
        self._stash = stash
        self._topics = topics
        self.writers: EventWriters = {
            logevents.BatchesCommitted: self._write_batches,
            logevents.ProducersExpired: self._expire,
        }

    def _expire(self, _: Work, event: logevents.ProducersExpired, __: Outcome) -> None:
        """Forget producers that the state has expired."""
        log = self._logs.get((event.topic_id, event.partition))
        partition = self._state.topics.partition(event.topic_id, event.partition)
        if log is None or partition is None:
            return
        for idle in event.producers:
            if idle.producer_id not in partition.producers:
                log.replay.producers.pop(idle.producer_id, None)
                log.replay.batches.pop(idle.producer_id, None)

    def _write_batches(
        self, work: Work, event: logevents.BatchesCommitted, outcome: Outcome
    ) -> None:
        rows = zip(event.extents, self._stash.get(event.object_id), outcome.value, strict=True)
        for extent, batch, appended in rows:
            if appended.error is not ErrorCode.NONE or appended.is_duplicate:
                continue
            partition = self._state.topics.partition(batch.topic_id, batch.partition)
            if partition is None:
                continue
            if (batch.topic_id, batch.partition) not in self._logs:
                self._settle_here(work, batch.topic_id, batch.partition)
            base, data = appended.base_offset, batch.data
            header = batch.header._replace(
                base_offset=base, partition_leader_epoch=partition.epoch_at(base), position=0
            )
            if appended.append_time_ms >= 0:
                header = header.with_append_time(appended.append_time_ms)
                batches.restamp_into(data, header)
            else:
                batches.stamp_into(data, base, header.partition_leader_epoch)
            work.add((batch.topic_id, batch.partition), NewBatch(header, data))
            if header.is_transactional:
                found_id = self._state.transactions.by_producer.get(extent.producer_id)
                if found_id is not None:
                    work.touched[found_id.id] = None

    def _settle_here(self, work: Work, topic_id: bytes, index: int) -> None:
        """Create a partition that was not local, since a client writes to it here."""
        self._loaded.elsewhere.discard((topic_id, index))
        name = self._state.topics.by_id[topic_id].name
        self._topics.make_logs(work, topic_id, name, [index])
