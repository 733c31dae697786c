"""Translates an applied entry into the files that Kafka would have written.

topics, settings, ids ──► __cluster_metadata          first: partitions must be known
transactions          ──► __transaction_state         that they begin, or that they will end
batches, markers      ──► the partitions themselves
committed offsets     ──► __consumer_offsets
transactions          ──► __transaction_state         that they have ended
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from rookery.cluster.entry import Entry
from rookery.cluster.events import brokerevents, groupevents, logevents, topicevents, txnevents
from rookery.cluster.state.outcome import EndedTransaction, EntryOutcome, Outcome
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.cluster.state.txns import TransactionOwner
from rookery.errors import ErrorCode
from rookery.formats.logfile.names import FolderName, Stage
from rookery.log.write import markers
from rookery.logdir.server.limits import SegmentLimits
from rookery.logdir.server.loadeddirectory import LoadedDirectory
from rookery.logdir.server.medium import Stash
from rookery.logdir.server.translate import offsetrecords, txnrecords
from rookery.logdir.server.translate.job import DirectoryJob, Key
from rookery.logdir.server.translate.kraft import MetadataWriter
from rookery.logdir.server.translate.txnrecords import TransactionRecord
from rookery.logdir.server.translate.work import Work
from rookery.logdir.server.trash import Trash
from rookery.logdir.writer.appendlog import AppendLog
from rookery.logdir.writer.segmentfile import NewBatch
from rookery.model.control import ControlRecordType
from rookery.model.partition import TopicPartition
from rookery.model.uuid import uuid_text
from rookery.records import batches, recordcodec
from rookery.records.recordcodec import BatchSettings, Record
from rookery.wire.message import Message

logger = logging.getLogger(__name__)

_NONE: Final = ErrorCode.NONE
_FOLDER_DELAY_MS: Final = 60_000
"""The delay before a deleted topic's folder is removed: Kafka's default of file.delete.delay.ms."""


Doomed = dict[str, list[tuple[str, int]]]
"""Offsets to delete: topics and partitions by group."""


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
        self._loaded = loaded
        self._state = loaded.state
        self._logs = loaded.logs
        self._stash = stash
        self._metadata = metadata
        self._limits = limits
        self._trash = trash
        self.write_starts: Callable[[], None] = lambda: None
        """Writes the log starts."""
        self._told: dict[str, TransactionRecord] = {}
        """The contents of `__transaction_state`."""
        self._in_offsets: dict[int, dict[Key, None]] = {}
        """The `__consumer_offsets` partitions with transactional offsets of each producer."""
        for transaction in self._state.transactions:
            writer = transaction.writer.producer_id
            for group_id in transaction.groups:
                place = offsetrecords.offsets_place(self._state, group_id)
                if place is not None:
                    self._in_offsets.setdefault(writer, {})[place] = None
            self._told[transaction.id] = txnrecords.standing(
                transaction, self._in_offsets.get(writer, ())
            )

    def foresee(self, events: list[Message]) -> Doomed:
        """Collect the offsets that will no longer be known after the entry is applied."""
        state = self._state
        doomed: Doomed = {}
        for event in events:
            if isinstance(event, groupevents.GroupDeleted | groupevents.GroupExpired):
                group = state.groups.by_id.get(event.group_id)
                places = doomed.setdefault(event.group_id, [])
                for topic_id, partition, _ in group.each_offset() if group is not None else ():
                    topic = state.topics.by_id.get(topic_id)
                    if topic is not None:
                        places.append((topic.name, partition))
            elif isinstance(event, topicevents.TopicDeleted):
                topic = state.topics.by_id.get(event.topic_id)
                if topic is not None:
                    _doom_topic(state, topic, doomed)
        return doomed

    def job(
        self, entry: Entry, events: list[Message], applied: EntryOutcome, doomed: Doomed
    ) -> DirectoryJob:
        """Return the writes for an applied entry."""
        work = Work(entry.stamp_ms)
        if not applied.is_void:
            for event, outcome in zip(events, applied.outcomes, strict=True):
                handler = self._handlers.get(type(event))
                if handler is not None and outcome.error is _NONE:
                    handler(self, work, event, outcome)
            work.records += self._metadata.producer_ids(self._state.next_producer_id)
            for group_id, names in doomed.items():
                rows = list(offsetrecords.removals(names, group_id, work.now_ms))
                self._tell_group(work, group_id, rows)
            for ended in applied.ended:
                self._end(work, ended)
            self._tell_transactions(work)
        return self._job(work)

    # Topics and settings.

    def _created(self, work: Work, event: topicevents.TopicCreated, _: Outcome) -> None:
        work.records += self._metadata.created(event)
        self._make_logs(work, event.topic_id, event.name, range(event.partitions))

    def _grown(self, work: Work, event: topicevents.PartitionsAdded, _: Outcome) -> None:
        topic = self._state.topics.by_id[event.topic_id]
        new = [
            index
            for index in range(event.partitions)
            if (topic.id, index) not in self._logs
            and (topic.id, index) not in self._loaded.elsewhere
        ]
        work.records += self._metadata.partitions(topic.id, new)
        self._make_logs(work, topic.id, topic.name, new)

    def _make_logs(self, work: Work, topic_id: bytes, name: str, indexes: Iterable[int]) -> None:
        folder = self._loaded.directory.paths[0]
        for index in indexes:
            place = TopicPartition(name, index)
            log = AppendLog(folder / place.text, place, topic_id, self._loaded.files.number)
            self._logs[topic_id, index] = log
            work.before.append(log.make)

    def _deleted(self, work: Work, event: topicevents.TopicDeleted, _: Outcome) -> None:
        work.records.append(self._metadata.deleted(event.topic_id))
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

    def _configured(self, work: Work, event: brokerevents.ConfigsChanged, _: Outcome) -> None:
        work.records += self._metadata.configured(event)

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

    # Batches.

    def _expired(self, _: Work, event: logevents.ProducersExpired, __: Outcome) -> None:
        """Forget producers that the state has expired."""
        log = self._logs.get((event.topic_id, event.partition))
        partition = self._state.topics.partition(event.topic_id, event.partition)
        if log is None or partition is None:
            return
        for idle in event.producers:
            if idle.producer_id not in partition.producers:
                log.replay.producers.pop(idle.producer_id, None)
                log.replay.batches.pop(idle.producer_id, None)

    def _committed(self, work: Work, event: logevents.BatchesCommitted, outcome: Outcome) -> None:
        found = zip(event.extents, self._stash.get(event.object_id), outcome.value, strict=True)
        for extent, batch, appended in found:
            if appended.error is not _NONE or appended.is_duplicate:
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
                header = header.appended_at(appended.append_time_ms)
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
        self._make_logs(work, topic_id, name, [index])

    def _end(self, work: Work, ended: EndedTransaction) -> None:
        """Write the markers of a transaction and, before them, the decision to end it."""
        for marked in ended.markers:
            partition = self._state.topics.partition(marked.topic_id, marked.partition)
            if partition is None:
                continue
            row = partition.row(bisect_left(partition.base_offsets, marked.offset))
            data = bytes(markers.stamp_marker(partition, row))
            work.add((marked.topic_id, marked.partition), NewBatch(batches.parse(data), data))
        outcome = ControlRecordType.COMMIT if ended.is_commit else ControlRecordType.ABORT
        in_offsets = self._in_offsets.pop(ended.producer_id, {})
        for key in in_offsets:
            self._append_marker(work, key, ended, outcome)
        places = [(marked.topic_id, marked.partition) for marked in ended.markers]
        self._prepare(work, ended, [*places, *in_offsets])

    def _append_marker(
        self, work: Work, key: Key, ended: EndedTransaction, outcome: ControlRecordType
    ) -> None:
        settings = self._settings(work, key, TransactionOwner(ended.producer_id, ended.epoch))
        if settings is not None:
            data = recordcodec.build_marker(outcome, 0, settings, work.now_ms)
            work.add(key, NewBatch(batches.parse(data), data))

    def _prepare(self, work: Work, ended: EndedTransaction, places: list[Key]) -> None:
        for transactional_id in work.touched:
            told = self._told.get(transactional_id)
            transaction = self._state.transactions.by_id.get(transactional_id)
            if told is None or transaction is None:
                continue
            if told.writer.producer_id != ended.producer_id:
                continue
            writer = TransactionOwner(ended.producer_id, ended.epoch)
            standing = txnrecords.prepared(writer, places, is_commit=ended.is_commit)
            record = txnrecords.record(self._state, transaction, standing, work.now_ms)
            work.decided.append((transactional_id, record))

    # Groups.

    def _offsets(self, work: Work, event: groupevents.OffsetsCommitted, outcome: Outcome) -> None:
        rows = offsetrecords.commits(
            self._state, event.group_id, event.offsets, outcome.value, work.now_ms
        )
        self._tell_group(work, event.group_id, list(rows))

    def _persisted(self, work: Work, event: groupevents.GroupPersisted, _: Outcome) -> None:
        """Record once that the members that Kafka knew of a group are not here."""
        generation = self._loaded.populated.pop(event.group_id, None)
        if generation is not None:
            row = offsetrecords.group_emptied(event.group_id, generation, work.now_ms)
            self._tell_group(work, event.group_id, [row])

    def _offsets_deleted(
        self,
        work: Work,
        event: groupevents.OffsetsDeleted | groupevents.OffsetsExpired,
        _: Outcome,
    ) -> None:
        names = []
        group = self._state.groups.by_id.get(event.group_id)
        for place in event.places:
            topic = self._state.topics.by_id.get(place.topic_id)
            is_gone = group is None or group.offset(place.topic_id, place.partition) is None
            if topic is not None and is_gone:
                names.append((topic.name, place.partition))
        rows = list(offsetrecords.removals(names, event.group_id, work.now_ms))
        self._tell_group(work, event.group_id, rows)

    def _group_deleted(
        self,
        work: Work,
        event: groupevents.GroupDeleted | groupevents.GroupExpired,
        _: Outcome,
    ) -> None:
        # Its offsets were collected before they were deleted.
        row = offsetrecords.group_removed(event.group_id, work.now_ms)
        self._tell_group(work, event.group_id, [row])

    def _tell_group(
        self, work: Work, group_id: str, rows: list[Record], writer: TransactionOwner | None = None
    ) -> None:
        key = offsetrecords.offsets_place(self._state, group_id)
        if key is None or not rows:
            return
        settings = self._settings(work, key, writer)
        if settings is not None:
            data = recordcodec.build(rows, settings)
            work.add(key, NewBatch(batches.parse(data), data))

    def _settings(
        self, work: Work, key: Key, writer: TransactionOwner | None
    ) -> BatchSettings | None:
        """Return the settings of a batch for an internal partition; None if it is not local."""
        partition = self._state.topics.partition(*key)
        if partition is None or key not in self._logs:
            return None
        base = work.next_offset(key, partition.next_offset)
        return BatchSettings(
            base_offset=base,
            partition_leader_epoch=partition.epoch_at(base),
            producer_id=writer.producer_id if writer else -1,
            producer_epoch=writer.epoch if writer else -1,
            is_transactional=writer is not None,
        )

    # Transactions.

    def _touched(self, work: Work, event: txnevents.TransactionInitialised, _: Outcome) -> None:
        work.touched[event.transactional_id] = None

    def _txn_offsets(
        self, work: Work, event: txnevents.TransactionOffsetsCommitted, outcome: Outcome
    ) -> None:
        work.touched[event.transactional_id] = None
        key = offsetrecords.offsets_place(self._state, event.group_id)
        if key is not None:
            self._in_offsets.setdefault(event.producer_id, {})[key] = None
        rows = offsetrecords.commits(
            self._state, event.group_id, event.offsets, outcome.value, work.now_ms
        )
        writer = TransactionOwner(event.producer_id, event.producer_epoch)
        self._tell_group(work, event.group_id, list(rows), writer)

    def _txn_group(
        self, work: Work, event: txnevents.OffsetsAddedToTransaction, _: Outcome
    ) -> None:
        work.touched[event.transactional_id] = None
        key = offsetrecords.offsets_place(self._state, event.group_id)
        if key is not None:
            self._in_offsets.setdefault(event.producer_id, {})[key] = None

    def _tell_transactions(self, work: Work) -> None:
        """Write the changes of transactional ids."""
        for transactional_id in work.touched:
            transaction = self._state.transactions.by_id.get(transactional_id)
            if transaction is None:
                self._told.pop(transactional_id, None)
                work.ended.append(
                    (transactional_id, txnrecords.removal(transactional_id, work.now_ms))
                )
                continue
            places = self._in_offsets.get(transaction.writer.producer_id, ())
            standing = txnrecords.standing(transaction, places)
            if standing != self._told.get(transactional_id):
                self._told[transactional_id] = standing
                row = txnrecords.record(self._state, transaction, standing, work.now_ms)
                ends = any(one == transactional_id for one, _ in work.decided)
                (work.ended if ends else work.decided).append((transactional_id, row))

    # Assembling the job.

    def _job(self, work: Work) -> DirectoryJob:
        job = DirectoryJob()
        if work.records:
            log, limits = self._metadata.log, self._metadata.limits
            batch = self._metadata.batch(work.records, log.next_offset, work.now_ms)
            job.append(log, [batch], limits, None)
        for step in work.before:
            job.add(step)
        decided = self._txn_batches(work, work.decided)
        ended = self._txn_batches(work, work.ended)
        for key, found in (*decided.items(), *work.batches.items(), *ended.items()):
            log_of = self._logs.get(key)
            topic = self._state.topics.by_id.get(key[0])
            if log_of is not None and topic is not None:
                found.sort(key=lambda batch: batch.header.base_offset)
                job.append(log_of, found, self._limits(self._state, topic), key)
        if work.moves_starts:
            job.add(self.write_starts)
        job.later = work.later
        return job

    def _txn_batches(self, work: Work, rows: list[tuple[str, Record]]) -> dict[Key, list[NewBatch]]:
        found: dict[Key, list[NewBatch]] = {}
        for transactional_id, row in rows:
            key = txnrecords.transactions_place(self._state, transactional_id)
            settings = self._settings(work, key, None) if key is not None else None
            if key is not None and settings is not None:
                data = recordcodec.build([row], settings)
                header = batches.parse(data)
                work.took(key, header.last_offset + 1)
                found.setdefault(key, []).append(NewBatch(header, data))
        return found

    _handlers: Final[dict[type[Message], Callable[..., None]]] = {
        topicevents.TopicCreated: _created,
        topicevents.PartitionsAdded: _grown,
        topicevents.TopicDeleted: _deleted,
        topicevents.LogStartMoved: _log_start,
        brokerevents.ConfigsChanged: _configured,
        logevents.BatchesCommitted: _committed,
        logevents.ProducersExpired: _expired,
        groupevents.GroupPersisted: _persisted,
        groupevents.OffsetsCommitted: _offsets,
        groupevents.OffsetsPublished: _offsets,
        groupevents.OffsetsDeleted: _offsets_deleted,
        groupevents.OffsetsExpired: _offsets_deleted,
        groupevents.GroupDeleted: _group_deleted,
        groupevents.GroupExpired: _group_deleted,
        txnevents.TransactionInitialised: _touched,
        txnevents.PartitionsAddedToTransaction: _touched,
        txnevents.OffsetsAddedToTransaction: _txn_group,
        txnevents.TransactionOffsetsCommitted: _txn_offsets,
        txnevents.TransactionEnded: _touched,
        txnevents.TransactionExpired: _touched,
        txnevents.TransactionalIdExpired: _touched,
    }


def _aside(log: AppendLog) -> Path:
    """Return the name of a partition's folder while its deletion is pending."""
    unique = uuid_text(log.topic_id).replace("-", "0").replace("_", "0")
    return log.folder.with_name(FolderName(log.name, Stage.DELETE, unique).text)


def _set_aside(log: AppendLog) -> None:
    """Rename a partition's folder, so that a partial one never counts and its name is free."""
    log.close()
    if log.folder.exists():
        log.folder.rename(_aside(log))


def _doom_topic(state: State, topic: Topic, doomed: Doomed) -> None:
    for group in state.groups:
        for partition in group.offsets.get(topic.id, ()):
            doomed.setdefault(group.id, []).append((topic.name, partition))
