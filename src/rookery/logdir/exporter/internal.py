"""Converts groups and transactional ids to records of Kafka's internal topics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from rookery.cluster.state.state import State
from rookery.cluster.state.txns import Transaction
from rookery.logdir.server.translate.javahash import partition_of
from rookery.records.recordcodec import BatchSettings, Record, build
from rookery.wire.coordinator.catalog import CONSUMER_OFFSETS, TRANSACTION_STATE
from rookery.wire.coordinator.offsets import OffsetCommitKey, OffsetCommitValue
from rookery.wire.coordinator.transactions import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

PARTITIONS: Final = 8
"""The partitions of each of the two topics; Kafka uses the existing number."""
CONFIGS: Final = {
    CONSUMER_OFFSETS.name: {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    },
    TRANSACTION_STATE.name: {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    },
}

_OFFSET_VERSION: Final = 3
_TRANSACTION_VERSION: Final = 0
_RECORDS: Final = 500


def offset_records(state: State) -> dict[int, list[Record]]:
    """Return the committed offsets of groups, as records by partition."""
    names = {topic.id: topic.name for topic in state.topics}
    records: dict[int, list[Record]] = defaultdict(list)
    for group in state.groups.by_id.values():
        for topic_id, partition, commit in group.each_offset():
            if topic_id not in names:
                continue
            key = OffsetCommitKey(group=group.id, topic=names[topic_id], partition=partition)
            value = OffsetCommitValue(
                offset=commit.offset,
                leader_epoch=commit.leader_epoch,
                metadata=commit.metadata,
                commit_timestamp=commit.commit_ms,
            )
            records[partition_of(group.id, PARTITIONS)].append(
                Record(
                    CONSUMER_OFFSETS.write_key(key),
                    CONSUMER_OFFSETS.write_value(value, _OFFSET_VERSION),
                    (),
                    commit.commit_ms,
                )
            )
    return records


def transaction_records(state: State, now_ms: int) -> dict[int, list[Record]]:
    """Return transactional ids with their open transactions, as records by partition."""
    names = {topic.id: topic.name for topic in state.topics}
    records: dict[int, list[Record]] = defaultdict(list)
    for transaction in state.transactions:
        key = TransactionLogKey(transactional_id=transaction.id)
        value = _value(transaction, names, now_ms)
        records[partition_of(transaction.id, PARTITIONS)].append(
            Record(
                TRANSACTION_STATE.write_key(key),
                TRANSACTION_STATE.write_value(value, _TRANSACTION_VERSION),
                (),
                now_ms,
            )
        )
    return records


def _value(transaction: Transaction, names: dict[bytes, str], now_ms: int) -> TransactionLogValue:
    places: dict[str, list[int]] = defaultdict(list)
    for topic_id, partition in transaction.partitions:
        if topic_id in names:
            places[names[topic_id]].append(partition)
    return TransactionLogValue(
        producer_id=transaction.writer.producer_id,
        producer_epoch=transaction.writer.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=[
            PartitionsSchema(topic=name, partition_ids=sorted(partitions))
            for name, partitions in sorted(places.items())
        ]
        if transaction.is_open
        else [],
        transaction_last_update_timestamp_ms=max(transaction.changed_ms, 0) or now_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
    )


def pack_records(rows: list[Record]) -> Iterator[bytes]:
    """Write records as batches of a log that starts at 0."""
    for at in range(0, len(rows), _RECORDS):
        settings = BatchSettings(base_offset=at, partition_leader_epoch=0)
        yield build(rows[at : at + _RECORDS], settings)
