"""The end of transactions: markers, offsets and epochs, all within the applied entry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from rookery.cluster.state import aborts, producers
from rookery.cluster.state.aborts import AbortedTransaction
from rookery.cluster.state.groups import Group, Groups
from rookery.cluster.state.outcome import EndedTransaction, EntryOutcome, WrittenMarker
from rookery.cluster.state.topics import Topics
from rookery.cluster.state.txns import (
    LAST_EPOCH,
    Place,
    Transaction,
    TransactionOwner,
    Transactions,
    TransactionState,
)


class TransactionContext(Protocol):
    """The parts of the state that transactions depend on."""

    topics: Topics
    groups: Groups
    transactions: Transactions
    next_producer_id: int


class Moment(NamedTuple):
    """The entry that is applied, and its time."""

    number: int
    stamp_ms: int


def end_epoch(
    known: TransactionContext,
    transaction: Transaction,
    state: TransactionState,
    moment: Moment,
    done: EntryOutcome,
) -> None:
    """End the open transaction, if any, and its epoch: the markers carry the next epoch."""
    writer = transaction.writer
    known.transactions.hand_to(transaction, next_writer(known, writer))
    ending = writer._replace(epoch=writer.epoch + 1)
    if transaction.is_open:
        close(known, transaction, state, ending, moment, done)
    transaction.state = state
    transaction.changed, transaction.changed_ms = moment


def close(
    known: TransactionContext,
    transaction: Transaction,
    state: TransactionState,
    writer: TransactionOwner,
    moment: Moment,
    done: EntryOutcome,
) -> None:
    """End a transaction: write markers to all its partitions and commit its offsets."""
    is_commit = state is TransactionState.COMPLETE_COMMIT
    markers = mark(known, transaction.partitions, writer, moment, done, is_commit=is_commit)
    moved = transaction.groups if is_commit else {}
    for group_id, offsets in moved.items():
        _move_offsets(known, group_id, offsets)
    done.ended.append(EndedTransaction(*writer, is_commit, markers, moved))
    known.transactions.close(transaction, state)
    transaction.changed, transaction.changed_ms = moment


def mark(
    known: TransactionContext,
    places: Iterable[Place],
    writer: TransactionOwner,
    moment: Moment,
    done: EntryOutcome,
    *,
    is_commit: bool,
) -> list[WrittenMarker]:
    """Write markers into partitions, and record aborted transactions there."""
    markers = []
    for topic_id, index in places:
        topic = known.topics.by_id.get(topic_id)
        if topic is None:
            continue  # it was deleted, and the transaction's records with it
        partition = topic.partitions[index]
        offset = partition.mark(
            *writer, moment.stamp_ms, is_commit=is_commit, is_append_time=topic.is_append_time
        )
        window = partition.producers.get(writer.producer_id)
        last = producers.describe(window).last_sequence if window is not None else -1
        partition.producers[writer.producer_id] = producers.close(
            window, writer.epoch, moment.stamp_ms
        )
        first = partition.ongoing.pop(writer.producer_id, None)
        if first is not None and not is_commit:
            stable = partition.last_stable_offset
            aborted = AbortedTransaction(writer.producer_id, first, offset, stable)
            aborts.add(partition.aborted, aborted)
        done.grown.append((topic_id, index))
        done.marked.append((topic_id, index))
        begin, last = (offset, -1) if first is None else (first, last)
        time_ms = partition.times[-1]
        markers.append(
            WrittenMarker(topic_id, index, begin, offset, last, time_ms, topic.is_append_time)
        )
    return markers


def next_writer(known: TransactionContext, writer: TransactionOwner) -> TransactionOwner:
    """Return the next epoch, or a new producer id if the epochs are exhausted."""
    if writer.epoch >= LAST_EPOCH:
        return TransactionOwner(new_id(known), 0)
    return writer._replace(epoch=writer.epoch + 1)


def new_id(known: TransactionContext) -> int:
    """Allocate a producer id that was never used."""
    taken = known.next_producer_id
    known.next_producer_id += 1
    return taken


def _move_offsets(known: TransactionContext, group_id: str, offsets: dict[Place, bytes]) -> None:
    """Commit a transaction's offsets to a group, which may have been removed in the meantime."""
    if not offsets:
        return
    group = known.groups.by_id.setdefault(group_id, Group(group_id))
    for (topic_id, partition), packed in offsets.items():
        if topic_id in known.topics.by_id:
            group.offsets.setdefault(topic_id, {})[partition] = packed
