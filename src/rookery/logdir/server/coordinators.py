"""Loads groups and transactions from Kafka's internal topics into the state."""

from __future__ import annotations

from typing import Final, NamedTuple

from rookery.cluster.events.groupevents import OffsetCommitted
from rookery.cluster.state.groups import Group, pack
from rookery.cluster.state.state import State
from rookery.cluster.state.txns import Place, Transaction, TransactionOwner, TransactionState
from rookery.formats.logfile.groups import LoggedGroups
from rookery.logdir.directory import LogDirectory
from rookery.logdir.internal import read_groups, read_transactions
from rookery.model.partition import TopicPartition
from rookery.wire.coordinator.offsets import OffsetCommitKey, OffsetCommitValue
from rookery.wire.coordinator.transactions import TransactionLogValue

PREPARE_COMMIT, PREPARE_ABORT = 2, 3
_STATES: Final = {
    0: TransactionState.EMPTY,
    1: TransactionState.ONGOING,
    # The end is decided, but not written everywhere: that happens before clients are served.
    PREPARE_COMMIT: TransactionState.ONGOING,
    PREPARE_ABORT: TransactionState.ONGOING,
    4: TransactionState.COMPLETE_COMMIT,
    5: TransactionState.COMPLETE_ABORT,
}


class CoordinatorRecords(NamedTuple):
    """Results that the state cannot hold."""

    prepared: dict[str, bool]
    """Transactions with a decided but unwritten end, and whether it is a commit."""
    populated: dict[str, int]
    """Groups that had members, and their generations."""


def load(state: State, directory: LogDirectory) -> CoordinatorRecords:
    """Load groups with their offsets, and transactional ids, into the state."""
    groups = read_groups(directory)
    populated = {
        name: image.classic.generation
        for name, image in groups.by_name.items()
        if image.classic is not None and image.classic.members
    }
    for name, image in groups.by_name.items():
        group = state.groups.by_id[name] = Group(name)
        for place, commit in image.offsets.items():
            key = _place(state, place)
            if key is not None:
                value = _pack(key, commit.offset, commit.leader_epoch, commit.metadata, commit[3])
                group.offsets.setdefault(key[0], {})[key[1]] = value
    prepared: dict[str, bool] = {}
    for transactional_id, record in read_transactions(directory).by_id.items():
        if record.transaction_status not in _STATES:
            continue
        state.transactions.add(_transaction(state, groups, transactional_id, record))
        if record.transaction_status in {PREPARE_COMMIT, PREPARE_ABORT}:
            prepared[transactional_id] = record.transaction_status == PREPARE_COMMIT
        state.next_producer_id = max(state.next_producer_id, record.producer_id + 1)
    return CoordinatorRecords(prepared, populated)


def _transaction(
    state: State, groups: LoggedGroups, transactional_id: str, record: TransactionLogValue
) -> Transaction:
    writer = TransactionOwner(record.producer_id, record.producer_epoch)
    made = Transaction(transactional_id, writer, record.transaction_timeout_ms)
    made.state = _STATES[record.transaction_status]
    made.changed_ms = record.transaction_last_update_timestamp_ms
    made.started_ms = record.transaction_start_timestamp_ms
    if not made.is_open:
        return made
    # Later than any entry of this process: expiry compares it with what was seen.
    made.started = -1
    for topic in record.transaction_partitions or ():
        for index in topic.partition_ids:
            place = _place(state, TopicPartition(topic.topic, index))
            if place is not None and not topic.topic.startswith("__"):
                made.partitions[place] = None
    for key, value in groups.list_pending(record.producer_id):
        if isinstance(key, OffsetCommitKey):
            _pend(state, made, key, value if isinstance(value, OffsetCommitValue) else None)
    return made


def _pend(
    state: State, made: Transaction, key: OffsetCommitKey, value: OffsetCommitValue | None
) -> None:
    pending = made.groups.setdefault(key.group, {})
    place = _place(state, TopicPartition(key.topic, key.partition))
    if place is not None and value is not None:
        pending[place] = _pack(
            place, value.offset, value.leader_epoch, value.metadata, value.commit_timestamp
        )


def _place(state: State, name: TopicPartition) -> Place | None:
    topic = state.topics.by_name.get(name.topic)
    if topic is None or not 0 <= name.partition < len(topic.partitions):
        return None
    return topic.id, name.partition


def _pack(place: Place, offset: int, leader_epoch: int, metadata: str, time_ms: int) -> bytes:
    event = OffsetCommitted(
        topic_id=place[0],
        partition=place[1],
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
    )
    return pack(event, time_ms)
