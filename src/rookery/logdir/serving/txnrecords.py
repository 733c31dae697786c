"""Transactions as records of `__transaction_state`, as Kafka's coordinator writes them.

An end is written twice: that it is decided, before the markers, and that it is complete, behind
them. Whoever finds the first without the second writes the markers again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rookery.cluster.state.state import State
from rookery.cluster.state.txns import Transaction, TransactionOwner, TransactionState
from rookery.logdir.serving.coordinators import PREPARE_ABORT, PREPARE_COMMIT
from rookery.logdir.serving.javahash import partition_of
from rookery.records.record import Record
from rookery.wire.coordinator.catalog import TRANSACTION_STATE
from rookery.wire.coordinator.transactions import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

Key = tuple[bytes, int]

# Every Kafka reads it, and takes it for one whose end is up to the coordinator.
_VALUE_VERSION = 0


class TransactionRecord(NamedTuple):
    """What Kafka has been told of a transactional id."""

    writer: TransactionOwner
    status: int
    places: tuple[Key, ...]


def transactions_place(state: State, transactional_id: str) -> Key | None:
    """Return the partition of `__transaction_state` that an id lives in; None if there is none."""
    topic = state.topics.by_name.get(TRANSACTION_STATE.name)
    if topic is None:
        return None
    return topic.id, partition_of(transactional_id, len(topic.partitions))


def standing(transaction: Transaction, offsets_places: Iterable[Key]) -> TransactionRecord:
    """Return what there is to tell of a transactional id."""
    places = (*transaction.partitions, *offsets_places) if transaction.is_open else ()
    return TransactionRecord(transaction.writer, int(transaction.state), places)


def prepared(
    writer: TransactionOwner, places: Iterable[Key], *, is_commit: bool
) -> TransactionRecord:
    """Return what there is to tell once its end is decided: the partitions that get markers."""
    status = PREPARE_COMMIT if is_commit else PREPARE_ABORT
    return TransactionRecord(writer, status, tuple(places))


def record(state: State, transaction: Transaction, told: TransactionRecord, now_ms: int) -> Record:
    """Write what is told of an id."""
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
    """Forget an id."""
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
