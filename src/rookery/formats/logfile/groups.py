"""Reads groups and transactions from `__consumer_offsets` and `__transaction_state`.

Records are added in the order of the log. An offset committed within a transaction takes effect
when the transaction's marker commits it. The batch headers identify the producer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from rookery.errors import Corrupt
from rookery.model.control import ControlRecordType
from rookery.model.partition import TopicPartition
from rookery.records import recordcodec
from rookery.records.batches import BatchHeader
from rookery.records.kernel import Buffer
from rookery.records.recordcodec import Record
from rookery.wire.coordinator.catalog import CONSUMER_OFFSETS, TRANSACTION_STATE
from rookery.wire.coordinator.classic import GroupMetadataKey, GroupMetadataValue
from rookery.wire.coordinator.consumer import ConsumerGroupMetadataKey
from rookery.wire.coordinator.offsets import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from rookery.wire.coordinator.transactions import TransactionLogKey, TransactionLogValue
from rookery.wire.message import Message


class LoggedOffset(NamedTuple):
    """The committed position of a group in a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = -1
    topic_id: bytes = bytes(16)


@dataclass(slots=True)
class LoggedGroup:
    """A group: its committed offsets, and its state after the last rebalance."""

    offsets: dict[TopicPartition, LoggedOffset] = field(default_factory=dict)
    classic: GroupMetadataValue | None = None
    is_consumer: bool = False
    """Whether it uses the consumer protocol (KIP-848)."""


@dataclass(slots=True)
class LoggedGroups:
    """All groups in one or more partitions of `__consumer_offsets`."""

    by_name: dict[str, LoggedGroup] = field(default_factory=dict)
    skipped: int = 0
    """Records of an unknown newer type, and those of groups that are not read."""
    damaged: list[str] = field(default_factory=list)
    """Descriptions of records that could not be read."""
    _open: dict[int, list[tuple[Message, Message | None]]] = field(default_factory=dict)

    def list_pending(self, producer_id: int) -> list[tuple[Message, Message | None]]:
        """Return the records that take effect if a producer's open transaction is committed."""
        return self._open.get(producer_id, [])

    def apply(self, batch: Buffer, header: BatchHeader) -> None:
        """Take in the next batch of the topic, given as the bytes of that batch alone."""
        for record in recordcodec.read(batch, header._replace(position=0)):
            try:
                self._apply(record, header)
            except Corrupt as error:
                self.damaged.append(f"offset {record.offset}: {error}")

    def settle(self, committed: Collection[int]) -> None:
        """End open transactions: commit those of these producer ids, abort all others."""
        for producer_id in list(self._open):
            is_commit = producer_id in committed
            self._end(
                producer_id, ControlRecordType.COMMIT if is_commit else ControlRecordType.ABORT
            )

    def _apply(self, record: Record, header: BatchHeader) -> None:
        if header.is_control:
            self._end(header.producer_id, recordcodec.control(record).type)
            return
        pair = _read(record)
        if pair is None:
            self.skipped += 1
        elif header.is_transactional:
            self._open.setdefault(header.producer_id, []).append(pair)
        else:
            self._take(*pair)

    def _end(self, producer_id: int, outcome: ControlRecordType | int) -> None:
        pending = self._open.pop(producer_id, [])
        if outcome == ControlRecordType.COMMIT:
            for pair in pending:
                self._take(*pair)

    def _take(self, key: Message, value: Message | None) -> None:
        match key:
            case OffsetCommitKey() | LegacyOffsetCommitKey():
                self._commit(key, value)
            case GroupMetadataKey():
                group = self.by_name.setdefault(key.group, LoggedGroup())
                group.classic = value if isinstance(value, GroupMetadataValue) else None
                self._drop_if_empty(key.group)
            case ConsumerGroupMetadataKey():
                group = self.by_name.setdefault(key.group_id, LoggedGroup())
                group.is_consumer = value is not None
                self._drop_if_empty(key.group_id)
            case _:
                pass  # members and assignments: a group that is opened elsewhere rebalances

    def _commit(self, key: OffsetCommitKey | LegacyOffsetCommitKey, value: Message | None) -> None:
        group = self.by_name.setdefault(key.group, LoggedGroup())
        partition = TopicPartition(key.topic, key.partition)
        match value:
            case OffsetCommitValue():
                group.offsets[partition] = LoggedOffset(
                    value.offset,
                    value.leader_epoch,
                    value.metadata,
                    value.commit_timestamp,
                    value.topic_id,
                )
            case LegacyOffsetCommitValue():
                group.offsets[partition] = LoggedOffset(
                    value.offset, -1, value.metadata, value.commit_timestamp
                )
            case _:
                group.offsets.pop(partition, None)
                self._drop_if_empty(key.group)

    def _drop_if_empty(self, name: str) -> None:
        group = self.by_name[name]
        if not group.offsets and group.classic is None and not group.is_consumer:
            del self.by_name[name]


@dataclass(slots=True)
class LoggedTransactions:
    """All transactional ids in partitions of `__transaction_state`."""

    by_id: dict[str, TransactionLogValue] = field(default_factory=dict)
    skipped: int = 0
    damaged: list[str] = field(default_factory=list)

    def apply(self, batch: Buffer, header: BatchHeader) -> None:
        """Take in the next batch of the topic, given as the bytes of that batch alone."""
        if header.is_control:
            return
        for record in recordcodec.read(batch, header._replace(position=0)):
            try:
                self._apply(record)
            except Corrupt as error:
                self.damaged.append(f"offset {record.offset}: {error}")

    def _apply(self, record: Record) -> None:
        key = TRANSACTION_STATE.read_key(record.key or b"")
        if not isinstance(key, TransactionLogKey):
            self.skipped += 1
            return
        value = TRANSACTION_STATE.read_value(key, record.value)
        if value is None:
            self.by_id.pop(key.transactional_id, None)
        elif isinstance(value[0], TransactionLogValue):
            self.by_id[key.transactional_id] = value[0]


def _read(record: Record) -> tuple[Message, Message | None] | None:
    key = CONSUMER_OFFSETS.read_key(record.key or b"")
    if key is None:
        return None
    value = CONSUMER_OFFSETS.read_value(key, record.value)
    return key, None if value is None else value[0]
