"""Translates an applied entry into the files that Kafka would have written.

topics, settings, ids ──► __cluster_metadata          first: partitions must be known
rules, users, quotas  ──► __cluster_metadata
transactions          ──► __transaction_state         that they begin, or that they will end
batches, markers      ──► the partitions themselves
committed offsets     ──► __consumer_offsets
transactions          ──► __transaction_state         that they have ended

Each subject has a scribe of its own, which collects writes. This one puts them in order.
"""

from __future__ import annotations

from collections.abc import Callable

from rookery.cluster.entry import Entry
from rookery.cluster.state.outcome import EntryOutcome
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.errors import ErrorCode
from rookery.logdir.server.directorytarget import Stash
from rookery.logdir.server.limits import SegmentLimits
from rookery.logdir.server.loadeddirectory import LoadedDirectory
from rookery.logdir.server.translate.batchscribe import BatchScribe
from rookery.logdir.server.translate.groupscribe import Doomed, GroupScribe
from rookery.logdir.server.translate.job import DirectoryJob
from rookery.logdir.server.translate.kraft import MetadataWriter
from rookery.logdir.server.translate.securityscribe import SecurityScribe
from rookery.logdir.server.translate.topicscribe import TopicScribe
from rookery.logdir.server.translate.txnscribe import TransactionScribe
from rookery.logdir.server.translate.work import EventWriters, Work
from rookery.logdir.server.trash import Trash
from rookery.wire.message import Message


class Scribe:
    """Turns the entries of one directory into jobs."""

    def __init__(
        self,
        loaded: LoadedDirectory,
        stash: Stash,
        metadata: MetadataWriter,
        limits: Callable[[State, Topic], SegmentLimits],
        trash: Trash,
    ) -> None:
        """Start with the loaded directory.

        Args:
            loaded: the directory and its state, which follows the entries.
            stash: batches that wait to be written.
            metadata: writes the cluster's metadata.
            limits: decides when segments are full, and when deleted ones are removed.
            trash: takes renamed files and folders, and deletes them later.
        """
        self._state = loaded.state
        self._logs = loaded.logs
        self._metadata = metadata
        self._limits = limits
        self.write_starts: Callable[[], None] = lambda: None
        """Writes the log starts."""
        topics = TopicScribe(loaded, metadata, limits, trash)
        records = BatchScribe(loaded, stash, topics)
        self._groups = GroupScribe(loaded)
        self._transactions = TransactionScribe(loaded, self._groups)
        self._writers: EventWriters = {
            **topics.writers,
            **records.writers,
            **self._groups.writers,
            **self._transactions.writers,
            **SecurityScribe(loaded).writers,
        }

    def foresee(self, events: list[Message]) -> Doomed:
        """Collect the offsets that will no longer be known after the entry is applied."""
        return self._groups.foresee(events)

    def job(
        self, entry: Entry, events: list[Message], applied: EntryOutcome, doomed: Doomed
    ) -> DirectoryJob:
        """Return the writes for an applied entry."""
        work = Work(entry.stamp_ms)
        if not applied.is_void:
            for event, outcome in zip(events, applied.outcomes, strict=True):
                write = self._writers.get(type(event))
                if write is not None and outcome.error is ErrorCode.NONE:
                    write(work, event, outcome)
            work.records += self._metadata.producer_ids(self._state.next_producer_id)
            self._groups.remove(work, doomed)
            for ended in applied.ended:
                self._transactions.end(work, ended)
            self._transactions.tell(work)
        return self._job(work)

    def _job(self, work: Work) -> DirectoryJob:
        """Put the collected writes in order."""
        job = DirectoryJob()
        if work.records:
            log, limits = self._metadata.log, self._metadata.limits
            batch = self._metadata.batch(work.records, log.next_offset, work.now_ms)
            job.append(log, [batch], limits, None)
        for step in work.before:
            job.add(step)
        decided = self._transactions.encode(work, work.decided)
        ended = self._transactions.encode(work, work.ended)
        for key, new in (*decided.items(), *work.batches.items(), *ended.items()):
            log_of = self._logs.get(key)
            topic = self._state.topics.by_id.get(key[0])
            if log_of is not None and topic is not None:
                new.sort(key=lambda batch: batch.header.base_offset)
                job.append(log_of, new, self._limits(self._state, topic), key)
        if work.moves_starts:
            job.add(self.write_starts)
        job.later = work.later
        return job
