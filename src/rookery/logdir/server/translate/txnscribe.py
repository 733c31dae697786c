"""Writes transactions into `__transaction_state`, and their markers into partitions."""

from __future__ import annotations

from bisect import bisect_left

from rookery.cluster.events import txnevents
from rookery.cluster.state.outcome import EndedTransaction, Outcome
from rookery.cluster.state.txns import TransactionOwner
from rookery.log.write import markers
from rookery.logdir.server.loadeddirectory import LoadedDirectory
from rookery.logdir.server.translate import offsetrecords, txnrecords
from rookery.logdir.server.translate.groupscribe import GroupScribe
from rookery.logdir.server.translate.internalbatch import internal_settings
from rookery.logdir.server.translate.job import Key
from rookery.logdir.server.translate.txnrecords import TransactionRecord
from rookery.logdir.server.translate.work import EventWriters, Work
from rookery.logdir.writer.segmentfile import NewBatch
from rookery.model.control import ControlRecordType
from rookery.records import batches, recordcodec
from rookery.records.recordcodec import Record

_TransactionEvent = (
    txnevents.TransactionInitialised
    | txnevents.PartitionsAddedToTransaction
    | txnevents.TransactionEnded
    | txnevents.TransactionExpired
    | txnevents.TransactionalIdExpired
)


class TransactionScribe:
    """Translates events about transactions, and the ends of transactions."""

    def __init__(self, loaded: LoadedDirectory, groups: GroupScribe) -> None:
        """Start with the transactions of the loaded directory.

        Args:
            loaded: the directory and its state.
            groups: writes the offsets of transactions.
        """
        self._loaded = loaded
        self._state = loaded.state
        self._groups = groups
        self._told: dict[str, TransactionRecord] = {}
        """The contents of `__transaction_state`."""
        self._in_offsets: dict[int, dict[Key, None]] = {}
        """The `__consumer_offsets` partitions with transactional offsets of each producer."""
        self.writers: EventWriters = {
            txnevents.TransactionInitialised: self._note_touched,
            txnevents.PartitionsAddedToTransaction: self._note_touched,
            txnevents.OffsetsAddedToTransaction: self._group_added,
            txnevents.TransactionOffsetsCommitted: self._offsets,
            txnevents.TransactionEnded: self._note_touched,
            txnevents.TransactionExpired: self._note_touched,
            txnevents.TransactionalIdExpired: self._note_touched,
        }
        for transaction in self._state.transactions:
            writer = transaction.writer.producer_id
            for group_id in transaction.groups:
                self._note_offsets(writer, group_id)
            self._told[transaction.id] = txnrecords.make_current(
                transaction, self._in_offsets.get(writer, ())
            )

    def end(self, work: Work, ended: EndedTransaction) -> None:
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

    def tell(self, work: Work) -> None:
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
            standing = txnrecords.make_current(transaction, places)
            if standing != self._told.get(transactional_id):
                self._told[transactional_id] = standing
                row = txnrecords.record(self._state, transaction, standing, work.now_ms)
                ends = any(decided == transactional_id for decided, _ in work.decided)
                (work.ended if ends else work.decided).append((transactional_id, row))

    def encode(self, work: Work, rows: list[tuple[str, Record]]) -> dict[Key, list[NewBatch]]:
        """Return the batches of records of transactional ids, by their partitions."""
        by_key: dict[Key, list[NewBatch]] = {}
        for transactional_id, row in rows:
            key = txnrecords.transactions_place(self._state, transactional_id)
            settings = internal_settings(self._loaded, work, key) if key is not None else None
            if key is not None and settings is not None:
                data = recordcodec.build([row], settings)
                header = batches.parse(data)
                work.took(key, header.last_offset + 1)
                by_key.setdefault(key, []).append(NewBatch(header, data))
        return by_key

    def _append_marker(
        self, work: Work, key: Key, ended: EndedTransaction, outcome: ControlRecordType
    ) -> None:
        writer = TransactionOwner(ended.producer_id, ended.epoch)
        settings = internal_settings(self._loaded, work, key, writer)
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
            standing = txnrecords.make_prepared(writer, places, is_commit=ended.is_commit)
            record = txnrecords.record(self._state, transaction, standing, work.now_ms)
            work.decided.append((transactional_id, record))

    def _note_touched(self, work: Work, event: _TransactionEvent, _: Outcome) -> None:
        work.touched[event.transactional_id] = None

    def _offsets(
        self, work: Work, event: txnevents.TransactionOffsetsCommitted, outcome: Outcome
    ) -> None:
        work.touched[event.transactional_id] = None
        self._note_offsets(event.producer_id, event.group_id)
        rows = offsetrecords.commits(
            self._state, event.group_id, event.offsets, outcome.value, work.now_ms
        )
        writer = TransactionOwner(event.producer_id, event.producer_epoch)
        self._groups.append(work, event.group_id, list(rows), writer)

    def _group_added(
        self, work: Work, event: txnevents.OffsetsAddedToTransaction, _: Outcome
    ) -> None:
        work.touched[event.transactional_id] = None
        self._note_offsets(event.producer_id, event.group_id)

    def _note_offsets(self, producer_id: int, group_id: str) -> None:
        """Record that a producer's transaction has offsets in a group's partition."""
        key = offsetrecords.offsets_place(self._state, group_id)
        if key is not None:
            self._in_offsets.setdefault(producer_id, {})[key] = None
