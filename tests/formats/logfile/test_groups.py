"""`__consumer_offsets` and `__transaction_state`: the state that follows from their records."""

from __future__ import annotations

from rookery.formats.logfile.groups import LoggedGroups, LoggedOffset, LoggedTransactions
from rookery.model.control import ControlRecordType
from rookery.model.partition import TopicPartition
from rookery.records.batches import parse
from rookery.records.recordcodec import BatchSettings, Record, build, build_marker
from rookery.wire.coordinator.catalog import CONSUMER_OFFSETS, TRANSACTION_STATE
from rookery.wire.coordinator.offsets import OffsetCommitKey, OffsetCommitValue
from rookery.wire.coordinator.transactions import TransactionLogKey, TransactionLogValue

PLACE = TopicPartition("t", 0)


def commit(group: str, offset: int | None) -> Record:
    key = CONSUMER_OFFSETS.write_key(OffsetCommitKey(group=group, topic="t", partition=0))
    if offset is None:
        return Record(key, None, (), 1)
    value = OffsetCommitValue(offset=offset, leader_epoch=2, metadata="m", commit_timestamp=9)
    return Record(key, CONSUMER_OFFSETS.write_value(value, 3), (), 1)


def feed(groups: LoggedGroups | LoggedTransactions, *rows: Record, producer_id: int = -1) -> None:
    settings = BatchSettings(
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        is_transactional=producer_id >= 0,
    )
    data = build(rows, settings)
    groups.apply(data, parse(data))


def end(groups: LoggedGroups, producer_id: int, outcome: ControlRecordType) -> None:
    settings = BatchSettings(producer_id=producer_id, producer_epoch=0)
    data = build_marker(outcome, 0, settings, 1)
    groups.apply(data, parse(data))


def test_last_commit_counts_and_a_tombstone_removes_it() -> None:
    groups = LoggedGroups()
    feed(groups, commit("a", 5), commit("b", 1), commit("a", 7), commit("b", None))

    assert groups.by_name["a"].offsets == {PLACE: LoggedOffset(7, 2, "m", 9)}
    assert list(groups.by_name) == ["a"]


def test_transactional_commits_take_effect_with_their_marker() -> None:
    groups = LoggedGroups()
    feed(groups, commit("a", 5), producer_id=1)
    feed(groups, commit("b", 6), producer_id=2)
    assert groups.by_name == {}

    end(groups, 1, ControlRecordType.COMMIT)
    end(groups, 2, ControlRecordType.ABORT)

    assert groups.by_name["a"].offsets[PLACE].offset == 5
    assert "b" not in groups.by_name


def test_open_transactions_are_settled_by_their_outcome() -> None:
    groups = LoggedGroups()
    feed(groups, commit("a", 5), producer_id=1)
    feed(groups, commit("b", 6), producer_id=2)

    groups.settle({2})

    assert list(groups.by_name) == ["b"]


def test_unknown_records_are_skipped_and_damaged_ones_named() -> None:
    groups = LoggedGroups()
    feed(groups, Record(b"\x7f\xff", b"from the future", (), 1), Record(b"\0\1\xff", b"x", (), 1))

    assert groups.skipped == 1
    assert len(groups.damaged) == 1
    assert groups.damaged[0].startswith("offset 1: ")


def test_transactional_ids_are_read() -> None:
    transactions = LoggedTransactions()
    key = TRANSACTION_STATE.write_key(TransactionLogKey(transactional_id="x"))
    value = TransactionLogValue(
        producer_id=4,
        producer_epoch=1,
        transaction_timeout_ms=1000,
        transaction_status=1,
        transaction_partitions=[],
        transaction_last_update_timestamp_ms=5,
        transaction_start_timestamp_ms=3,
    )
    feed(transactions, Record(key, TRANSACTION_STATE.write_value(value, 1), (), 1))
    assert transactions.by_id == {"x": value}

    feed(transactions, Record(key, None, (), 1))
    assert transactions.by_id == {}
