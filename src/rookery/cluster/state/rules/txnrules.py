"""The effects of transaction events, and of batches that are part of a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rookery.cluster.entry import Entry
from rookery.cluster.events import txnevents
from rookery.cluster.events.logevents import Extent
from rookery.cluster.state import producers
from rookery.cluster.state.groups import pack
from rookery.cluster.state.outcome import OK, EndedTransaction, EntryOutcome, Outcome
from rookery.cluster.state.partition import Partition
from rookery.cluster.state.rules.txnends import (
    Moment,
    TransactionContext,
    close,
    end_epoch,
    mark,
    new_id,
    next_writer,
)
from rookery.cluster.state.txns import (
    NOBODY,
    Place,
    Transaction,
    TransactionOwner,
    Transactions,
    TransactionState,
)
from rookery.errors import ErrorCode
from rookery.records.batches import TRANSACTIONAL
from rookery.wire.message import Message

_NONE: Final = ErrorCode.NONE
_FENCED: Final = Outcome(ErrorCode.PRODUCER_FENCED)
_NOT_OURS: Final = Outcome(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_WRONG_STATE: Final = Outcome(ErrorCode.INVALID_TXN_STATE)
_MOVED: Final = Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
_COMPLETE: Final = (TransactionState.COMPLETE_ABORT, TransactionState.COMPLETE_COMMIT)


# Batches.


def judge(transaction: Transaction | None, partition: Partition, extent: Extent) -> ErrorCode:
    """Decide whether a batch's producer may write; only the latest producer of an id may."""
    is_transactional = extent.attributes & TRANSACTIONAL
    if transaction is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING if is_transactional else _NONE
    if extent.producer_epoch != transaction.writer.epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if not is_transactional and extent.producer_id in partition.ongoing:
        return ErrorCode.INVALID_TXN_STATE
    return _NONE


def join(
    transactions: Transactions, partition: Partition, extent: Extent, moment: Moment
) -> ErrorCode:
    """Add a new batch to its producer's transaction; its offset is the partition's next.

    In the older protocol the partition must have been added before, so that a late batch cannot
    open a transaction that nothing would end. In the newer protocol the epoch of a late batch is
    too old.
    """
    transaction = transactions.by_producer[extent.producer_id]
    place = (extent.topic_id, extent.partition)
    if not transaction.is_open or place not in transaction.partitions:
        if not extent.joins_transaction:
            return ErrorCode.INVALID_TXN_STATE
        transactions.begin(transaction, *moment)
        transaction.partitions[place] = None
    partition.ongoing.setdefault(extent.producer_id, partition.next_offset)
    return _NONE


# Events from producers.


def _initialise(
    known: TransactionContext,
    entry: Entry,
    event: txnevents.TransactionInitialised,
    done: EntryOutcome,
) -> Outcome:
    transactions = known.transactions
    transaction = transactions.by_id.get(event.transactional_id)
    named = TransactionOwner(event.producer_id, event.producer_epoch)
    if transaction is None:
        writer = TransactionOwner(new_id(known), 0)
        transaction = Transaction(event.transactional_id, writer, event.timeout_ms)
        transactions.add(transaction)
    elif named not in {NOBODY, transaction.writer}:
        # It may have missed the response to its last attempt; but then nothing can be open.
        is_repeated = named == transaction.last and not transaction.is_open
        return Outcome(_NONE, transaction.writer) if is_repeated else _FENCED
    else:
        if transaction.is_open:
            _fence(known, transaction, Moment(done.number, entry.stamp_ms), done)
        else:
            transactions.hand_to(transaction, next_writer(known, transaction.writer))
        transaction.last = named
        transaction.state, transaction.started_ms = TransactionState.EMPTY, -1
    transaction.timeout_ms = event.timeout_ms
    transaction.changed, transaction.changed_ms = done.number, entry.stamp_ms
    return Outcome(_NONE, transaction.writer)


def _partitions_added(
    known: TransactionContext,
    entry: Entry,
    event: txnevents.PartitionsAddedToTransaction,
    done: EntryOutcome,
) -> Outcome:
    transaction = _of(known, event)
    if isinstance(transaction, Outcome):
        return transaction
    places = [(place.topic_id, place.partition) for place in event.places]
    if any(known.topics.partition(*place) is None for place in places):
        return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    known.transactions.begin(transaction, done.number, entry.stamp_ms)
    transaction.partitions.update(dict.fromkeys(places))
    return OK


def _offsets_added(
    known: TransactionContext,
    entry: Entry,
    event: txnevents.OffsetsAddedToTransaction,
    done: EntryOutcome,
) -> Outcome:
    transaction = _of(known, event)
    if isinstance(transaction, Outcome):
        return transaction
    known.transactions.begin(transaction, done.number, entry.stamp_ms)
    known.transactions.join(transaction, event.group_id)
    return OK


def _offsets_committed(
    known: TransactionContext,
    entry: Entry,
    event: txnevents.TransactionOffsetsCommitted,
    done: EntryOutcome,
) -> Outcome:
    transaction = _of(known, event)
    if isinstance(transaction, Outcome):
        return transaction
    if known.groups.find_led(event.group_id, entry.incarnation, event.group_epoch) is None:
        return Outcome(ErrorCode.NOT_COORDINATOR)
    if event.group_id not in transaction.groups:
        if not event.joins:
            return _WRONG_STATE
        known.transactions.begin(transaction, done.number, entry.stamp_ms)
        known.transactions.join(transaction, event.group_id)
    pending = transaction.groups[event.group_id]
    codes = []
    for offset in event.offsets:
        is_known = known.topics.partition(offset.topic_id, offset.partition) is not None
        codes.append(_NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if is_known:
            pending[offset.topic_id, offset.partition] = pack(offset, entry.stamp_ms)
    return Outcome(_NONE, codes)


def _end_transaction(
    known: TransactionContext, entry: Entry, event: txnevents.TransactionEnded, done: EntryOutcome
) -> Outcome:
    transaction = known.transactions.by_id.get(event.transactional_id)
    if transaction is None:
        return _NOT_OURS
    wanted = _COMPLETE[event.is_commit]
    named = TransactionOwner(event.producer_id, event.producer_epoch)
    if event.raises_epoch and named == transaction.last and transaction.state in _COMPLETE:
        # The first response was lost, but the outcome is already settled.
        is_same = transaction.state is wanted
        return Outcome(_NONE, transaction.writer) if is_same else _WRONG_STATE
    if named.producer_id != transaction.writer.producer_id:
        return _NOT_OURS
    if named != transaction.writer:
        return _FENCED
    return _end(known, transaction, event, _moment(entry, done), done)


def _end(
    known: TransactionContext,
    transaction: Transaction,
    event: txnevents.TransactionEnded,
    moment: Moment,
    done: EntryOutcome,
) -> Outcome:
    """End a transaction by the older protocol, or with a new epoch for the next one."""
    wanted, writer = _COMPLETE[event.is_commit], transaction.writer
    if not event.raises_epoch:
        if transaction.is_open:
            close(known, transaction, wanted, writer, moment, done)
        # A retry gets the same response.
        return Outcome(_NONE, writer) if transaction.state is wanted else _WRONG_STATE
    if event.is_commit and not transaction.is_open:
        return _WRONG_STATE
    end_epoch(known, transaction, wanted, moment, done)
    transaction.last = writer
    return Outcome(_NONE, transaction.writer)


# Events from other sources.


def _expire_transaction(
    known: TransactionContext, entry: Entry, event: txnevents.TransactionExpired, done: EntryOutcome
) -> Outcome:
    transaction = known.transactions.open.get(event.transactional_id)
    if transaction is None or transaction.started != event.started:
        return _MOVED
    _fence(known, transaction, _moment(entry, done), done)
    transaction.last = NOBODY
    return OK


def _id_expired(
    known: TransactionContext,
    _entry: Entry,
    event: txnevents.TransactionalIdExpired,
    _done: EntryOutcome,
) -> Outcome:
    transaction = known.transactions.by_id.get(event.transactional_id)
    if transaction is None or transaction.is_open or transaction.changed != event.changed:
        return _MOVED
    known.transactions.remove(transaction)
    return OK


def _markers_written(
    known: TransactionContext, entry: Entry, event: txnevents.MarkersWritten, done: EntryOutcome
) -> Outcome:
    writer = TransactionOwner(event.producer_id, event.producer_epoch)
    moment = _moment(entry, done)
    codes = []
    for place in event.places:
        where = (place.topic_id, place.partition)
        code = _may_mark(known, where, writer)
        partition = known.topics.partition(*where)
        # If nothing is open, the marker was already written and would end nothing.
        if code is _NONE and partition is not None and writer.producer_id in partition.ongoing:
            markers = mark(known, [where], writer, moment, done, is_commit=event.is_commit)
            done.ended.append(EndedTransaction(*writer, event.is_commit, markers, {}))
        codes.append(code)
    return Outcome(_NONE, codes)


def _may_mark(known: TransactionContext, place: Place, writer: TransactionOwner) -> ErrorCode:
    """Return whether another party may end a producer's open records in a partition."""
    partition = known.topics.partition(*place)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    owner = known.transactions.by_producer.get(writer.producer_id)
    if owner is not None and place in owner.partitions:
        # Its other partitions could end differently, which would break atomicity.
        return ErrorCode.INVALID_TXN_STATE
    window = partition.producers.get(writer.producer_id)
    lowest = producers.describe(window).epoch if window is not None else 0
    if writer.epoch < lowest:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return _NONE


# For all of these.


def _of(
    known: TransactionContext,
    event: txnevents.PartitionsAddedToTransaction
    | txnevents.OffsetsAddedToTransaction
    | txnevents.TransactionOffsetsCommitted,
) -> Transaction | Outcome:
    """Return the transactional id of an event, if its producer is the current one."""
    transaction = known.transactions.by_id.get(event.transactional_id)
    if transaction is None or transaction.writer.producer_id != event.producer_id:
        return _NOT_OURS
    return transaction if transaction.writer.epoch == event.producer_epoch else _FENCED


def _moment(entry: Entry, done: EntryOutcome) -> Moment:
    return Moment(done.number, entry.stamp_ms)


def _fence(
    known: TransactionContext, transaction: Transaction, moment: Moment, done: EntryOutcome
) -> None:
    """Abort the open transaction and fence its producer."""
    end_epoch(known, transaction, TransactionState.COMPLETE_ABORT, moment, done)


HANDLERS: Final[dict[type[Message], Callable[..., Outcome]]] = {
    txnevents.TransactionInitialised: _initialise,
    txnevents.PartitionsAddedToTransaction: _partitions_added,
    txnevents.OffsetsAddedToTransaction: _offsets_added,
    txnevents.TransactionOffsetsCommitted: _offsets_committed,
    txnevents.TransactionEnded: _end_transaction,
    txnevents.TransactionExpired: _expire_transaction,
    txnevents.TransactionalIdExpired: _id_expired,
    txnevents.MarkersWritten: _markers_written,
}
