"""Writes transactions as records of `__transaction_state`, as Kafka's coordinator does.

An end is written twice: as decided, before the markers, and as complete, after them. A process that
finds the first without the second writes the markers again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rookery.cluster.state.state import State
from rookery.cluster.state.txns import Transaction, TransactionOwner, TransactionState
from rookery.logdir.server.coordinators import PREPARE_ABORT, PREPARE_COMMIT
from rookery.logdir.server.translate.javahash import partition_of
from rookery.records.recordcodec import Record
from rookery.wire.coordinator.catalog import TRANSACTION_STATE
from rookery.wire.coordinator.transactions import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

Key = tuple[bytes, int]

# Every Kafka reads this version, and lets the coordinator end such transactions.
_VALUE_VERSION = 0


class TransactionRecord(NamedTuple):
    """The recorded state of a transactional id."""

    writer: TransactionOwner
    status: int
    places: tuple[Key, ...]


def transactions_place(state: State, transactional_id: str) -> Key | None:
    """Return an id's partition of `__transaction_state`; None if the topic does not exist."""
    topic = state.topics.by_name.get(TRANSACTION_STATE.name)
    if topic is None:
        return None
    return topic.id, partition_of(transactional_id, len(topic.partitions))


def make_current(transaction: Transaction, offsets_places: Iterable[Key]) -> TransactionRecord:
    """Return the state to record for a transactional id."""
    places = (*transaction.partitions, *offsets_places) if transaction.is_open else ()
    return TransactionRecord(transaction.writer, int(transaction.state), places)


def make_prepared(
    writer: TransactionOwner, places: Iterable[Key], *, is_commit: bool
) -> TransactionRecord:
    """Return the state to record once the end is decided: the partitions that get markers."""
    status = PREPARE_COMMIT if is_commit else PREPARE_ABORT
    return TransactionRecord(writer, status, tuple(places))


def record(state: State, transaction: Transaction, told: TransactionRecord, now_ms: int) -> Record:
    """Return the record of an id's state."""
    is_empty = told.status == TransactionState.EMPTY
    value = TransactionLogValue(
        producer_id=told.writer.producer_id,
        producer_epoch=told.writer.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=told.status,
        transaction_partitions=None if is_empty else _schemas(state, told.places),
        transaction_last_update_timestamp_ms=now_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
    )
    return Record(
        _key(transaction.id), TRANSACTION_STATE.write_value(value, _VALUE_VERSION), (), now_ms
    )


def removal(transactional_id: str, now_ms: int) -> Record:
    """Return the tombstone of an id."""
    return Record(_key(transactional_id), None, (), now_ms)


def _key(transactional_id: str) -> bytes:
    return TRANSACTION_STATE.write_key(TransactionLogKey(transactional_id=transactional_id))


def _schemas(state: State, places: Iterable[Key]) -> list[PartitionsSchema]:
    by_topic: dict[str, list[int]] = {}
    for topic_id, index in places:
        topic = state.topics.by_id.get(topic_id)
        if topic is not None:
            by_topic.setdefault(topic.name, []).append(index)
    return [PartitionsSchema(topic=name, partition_ids=ids) for name, ids in by_topic.items()]
