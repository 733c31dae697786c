"""Transactions as pure state: tables of the effects of each event, and a model as oracle."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from rookery.cluster.entry import EntryAuthor, read_entry, read_events, write_entry
from rookery.cluster.events.brokerevents import BrokerRegistered, ClusterCreated, SettingChange
from rookery.cluster.events.groupevents import GroupClaimed, GroupDeleted, OffsetCommitted
from rookery.cluster.events.logevents import BatchesCommitted, Extent
from rookery.cluster.events.topicevents import LogStartMoved, TopicCreated, TopicDeleted
from rookery.cluster.events.txnevents import (
    MarkersWritten,
    OffsetsAddedToTransaction,
    PartitionsAddedToTransaction,
    TransactionalIdExpired,
    TransactionEnded,
    TransactionExpired,
    TransactionInitialised,
    TransactionOffsetsCommitted,
    TransactionPlace,
)
from rookery.cluster.state import aborts
from rookery.cluster.state.aborts import AbortedTransaction
from rookery.cluster.state.images.image import read_image, write_image
from rookery.cluster.state.outcome import EntryOutcome, Outcome
from rookery.cluster.state.partition import Partition, RowKind
from rookery.cluster.state.state import AppendOutcome, State
from rookery.cluster.state.txns import LAST_EPOCH, TransactionOwner, TransactionState
from rookery.errors import ErrorCode
from rookery.records.batches import TRANSACTIONAL
from rookery.wire.message import Message

TOPIC = bytes(range(16))
STAMPED = bytes(range(1, 17))
NODE = 1


class Cluster:
    """One broker and what it says, applied one entry after the other."""

    def __init__(self) -> None:
        self.state = State()
        self.sequence = 0
        self.sent: dict[tuple[int, int, int], int] = {}
        self._apply(0, [ClusterCreated(cluster_id="c", feature_level=1)])
        self._apply(0, [BrokerRegistered(process_id=TOPIC, node_id=NODE, host="h", port=1)])
        self.incarnation = 2
        self.say(
            TopicCreated(topic_id=TOPIC, name="t", partitions=2, replication_factor=1, configs=[])
        )
        append_time = SettingChange(name="message.timestamp.type", value="LogAppendTime")
        self.say(
            TopicCreated(
                topic_id=STAMPED,
                name="stamped",
                partitions=1,
                replication_factor=1,
                configs=[append_time],
            )
        )

    def say(self, event: Message, stamp_ms: int = 1000) -> Outcome:
        """Apply an event in an entry of its own."""
        self.sequence += 1
        return self._apply(self.incarnation, [event], stamp_ms).outcomes[0]

    def _apply(self, incarnation: int, events: list[Message], stamp_ms: int = 1000) -> EntryOutcome:
        number = self.state.applied + 1
        writer = EntryAuthor(incarnation, self.sequence, stamp_ms, 0, 0)
        entry = read_entry(number, write_entry(writer, events))
        done = self.state.apply(number, entry, read_events(number, entry))
        assert not done.is_void
        return done

    def partition(self, index: int = 0, topic: bytes = TOPIC) -> Partition:
        partition = self.state.topics.partition(topic, index)
        assert partition is not None
        return partition

    def init(self, name: str = "x", known: TransactionOwner | None = None) -> TransactionOwner:
        """Become the producer of a transactional id."""
        outcome = self.say(initialised(name, known))
        assert outcome.error is ErrorCode.NONE
        assert isinstance(outcome.value, TransactionOwner)
        return outcome.value

    def write(
        self,
        writer: TransactionOwner,
        index: int = 0,
        records: int = 1,
        *,
        joins: bool = True,
        is_transactional: bool = True,
        topic: bytes = TOPIC,
    ) -> AppendOutcome:
        """Write a batch with the sequence that comes next, if it is taken."""
        key = (*writer, index)
        sequence = self.sent.get(key, 0)
        extent = Extent(
            topic_id=topic,
            partition=index,
            position=0,
            size=100,
            records=records,
            attributes=TRANSACTIONAL if is_transactional else 0,
            max_timestamp=5,
            producer_id=writer.producer_id,
            producer_epoch=writer.epoch,
            base_sequence=sequence,
            joins_transaction=joins,
        )
        [appended] = self.say(BatchesCommitted(object_id=0, extents=[extent])).value
        assert isinstance(appended, AppendOutcome)
        if appended.error is ErrorCode.NONE:
            self.sent[key] = sequence + records
        return appended

    def add(self, writer: TransactionOwner, *indexes: int, name: str = "x") -> ErrorCode:
        places = [TransactionPlace(topic_id=TOPIC, partition=index) for index in indexes]
        return self.say(PartitionsAddedToTransaction(**named(name, writer), places=places)).error

    def end(
        self, writer: TransactionOwner, *, commit: bool, raises: bool = True, name: str = "x"
    ) -> Outcome:
        event = TransactionEnded(**named(name, writer), is_commit=commit, raises_epoch=raises)
        return self.say(event, stamp_ms=2000)


def initialised(name: str = "x", known: TransactionOwner | None = None) -> TransactionInitialised:
    writer = known or TransactionOwner(-1, -1)
    return TransactionInitialised(
        transactional_id=name,
        timeout_ms=60_000,
        producer_id=writer.producer_id,
        producer_epoch=writer.epoch,
    )


def named(name: str, writer: TransactionOwner) -> dict[str, Any]:
    return {
        "transactional_id": name,
        "producer_id": writer.producer_id,
        "producer_epoch": writer.epoch,
    }


def markers(partition: Partition) -> list[tuple[int, int, int, bool]]:
    """List offset, producer id, epoch and whether it is a commit."""
    rows = [partition.row(index) for index in range(len(partition.base_offsets))]
    return [
        (row.base_offset, *row.producer, bool(row.kind & RowKind.COMMIT))
        for row in rows
        if row.is_marker
    ]


# Beginnings and fencing.


def test_ids_are_new_and_epochs_ascend() -> None:
    cluster = Cluster()
    first = cluster.init()
    assert first.epoch == 0
    assert cluster.init("y").producer_id != first.producer_id
    assert cluster.init() == (first.producer_id, 1)
    assert cluster.state.transactions.by_id["x"].state is TransactionState.EMPTY


def test_new_producer_aborts_the_open_transaction_of_its_predecessor() -> None:
    cluster = Cluster()
    old = cluster.init()
    cluster.write(old, records=2)
    new = cluster.init()
    partition = cluster.partition()
    assert markers(partition) == [(2, old.producer_id, 1, False)]
    assert partition.last_stable_offset == 3
    assert cluster.write(old).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert cluster.write(old, is_transactional=False).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert cluster.add(old, 0) is ErrorCode.PRODUCER_FENCED
    assert cluster.end(old, commit=True).error is ErrorCode.PRODUCER_FENCED
    assert cluster.write(new).error is ErrorCode.NONE


def test_producer_that_names_its_id_continues_and_can_repeat_the_request() -> None:
    cluster = Cluster()
    first = cluster.init()
    second = cluster.init(known=first)
    assert second == (first.producer_id, 1)
    # Its answer got lost, and it asks again.
    assert cluster.init(known=first) == second
    assert cluster.init(known=second).epoch == 2
    assert cluster.say(initialised(known=first)).error is ErrorCode.PRODUCER_FENCED


def test_fenced_producer_cannot_reinitialise_with_its_old_epoch() -> None:
    cluster = Cluster()
    first = cluster.init()
    cluster.init()
    assert cluster.say(initialised(known=first)).error is ErrorCode.PRODUCER_FENCED
    foreign = TransactionOwner(first.producer_id + 99, 0)
    assert cluster.say(initialised(known=foreign)).error is ErrorCode.PRODUCER_FENCED


def test_repeated_initialisation_does_not_end_an_open_transaction() -> None:
    cluster = Cluster()
    first = cluster.init()
    second = cluster.init(known=first)
    cluster.write(second)
    assert cluster.say(initialised(known=first)).error is ErrorCode.PRODUCER_FENCED
    assert cluster.end(second, commit=True).error is ErrorCode.NONE


@pytest.mark.parametrize("ends_by", ["init", "commit", "abort", "expiry"])
def test_exhausted_epochs_give_a_new_producer_id(ends_by: str) -> None:
    cluster = Cluster()
    writer = cluster.init()
    transaction = cluster.state.transactions.by_id["x"]
    last = TransactionOwner(writer.producer_id, LAST_EPOCH)
    cluster.state.transactions.hand_to(transaction, last)
    cluster.write(last)
    if ends_by == "init":
        cluster.init()
    elif ends_by == "expiry":
        cluster.say(TransactionExpired(transactional_id="x", started=transaction.started))
    else:
        assert cluster.end(last, commit=ends_by == "commit").value == transaction.writer
    assert transaction.writer.producer_id > last.producer_id
    assert transaction.writer.epoch == 0
    assert markers(cluster.partition())[0][1:3] == (last.producer_id, LAST_EPOCH + 1)
    assert cluster.write(last).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert cluster.write(transaction.writer).error is ErrorCode.NONE


# Writing.


def test_older_protocol_requires_partitions_to_be_added_first() -> None:
    cluster = Cluster()
    writer = cluster.init()
    assert cluster.write(writer, joins=False).error is ErrorCode.INVALID_TXN_STATE
    assert cluster.partition().next_offset == 0
    assert cluster.add(writer, 0) is ErrorCode.NONE
    assert cluster.write(writer, joins=False).error is ErrorCode.NONE
    assert cluster.write(writer, 1, joins=False).error is ErrorCode.INVALID_TXN_STATE
    cluster.end(writer, commit=True, raises=False)
    # A late request must not open a transaction that no producer would end.
    assert cluster.write(writer, joins=False).error is ErrorCode.INVALID_TXN_STATE
    assert cluster.partition().last_stable_offset == 2


def test_newer_protocol_adds_partitions_on_write() -> None:
    cluster = Cluster()
    writer = cluster.init()
    assert cluster.write(writer).error is ErrorCode.NONE
    after = cluster.end(writer, commit=True).value
    assert after == (writer.producer_id, writer.epoch + 1)
    assert cluster.write(writer).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert cluster.write(after).error is ErrorCode.NONE
    assert cluster.partition().ongoing == {writer.producer_id: 2}


def test_transactional_write_requires_a_transactional_id() -> None:
    cluster = Cluster()
    assert cluster.write(TransactionOwner(77, 0)).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert cluster.write(TransactionOwner(77, 0), is_transactional=False).error is ErrorCode.NONE


def test_non_transactional_write_within_a_transaction_is_refused() -> None:
    cluster = Cluster()
    writer = cluster.init()
    cluster.write(writer)
    plain = cluster.write(writer, is_transactional=False)
    assert plain.error is ErrorCode.INVALID_TXN_STATE


def test_repeated_batch_opens_no_transaction() -> None:
    cluster = Cluster()
    writer = cluster.init()
    cluster.add(writer, 0)
    cluster.write(writer, joins=False)
    cluster.end(writer, commit=True, raises=False)
    cluster.sent.clear()
    again = cluster.write(writer, joins=False)
    assert again.error is not ErrorCode.NONE
    assert not cluster.partition().ongoing
    assert cluster.partition().next_offset == 2  # the batch, and its marker


@pytest.mark.parametrize("commit", [True, False])
def test_batch_is_not_a_repetition_of_one_before_the_marker(*, commit: bool) -> None:
    # A client that gave up a batch, its answer being lost, uses its numbers again: acknowledged
    # as a repetition, the new records would be nowhere.
    cluster = Cluster()
    writer = cluster.init()
    cluster.add(writer, 0)
    cluster.write(writer, records=2, joins=False)
    cluster.end(writer, commit=commit, raises=False)
    cluster.sent.clear()
    cluster.add(writer, 0)
    again = cluster.write(writer, records=2, joins=False)
    assert again.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    # The next batch in sequence is accepted; a repetition within the transaction is a duplicate.
    cluster.sent[(*writer, 0)] = 2
    first = cluster.write(writer, records=2, joins=False)
    cluster.sent[(*writer, 0)] = 2
    second = cluster.write(writer, records=2, joins=False)
    assert (first.error, first.is_duplicate) == (ErrorCode.NONE, False)
    assert (second.error, second.is_duplicate) == (ErrorCode.NONE, True)
    assert second.base_offset == first.base_offset


def test_partitions_are_added_atomically() -> None:
    cluster = Cluster()
    writer = cluster.init()
    assert cluster.add(writer, 0, 7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not cluster.state.transactions.open
    stranger = TransactionOwner(writer.producer_id + 5, 0)
    assert cluster.add(stranger, 0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert cluster.add(writer, 0, name="nobody") is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# Ends.


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("raises", [True, False])
def test_end_writes_markers_to_all_partitions_together(*, commit: bool, raises: bool) -> None:
    cluster = Cluster()
    writer = cluster.init()
    cluster.add(writer, 0, 1)
    cluster.write(writer, 0, 3, joins=False)
    cluster.end(writer, commit=commit, raises=raises)
    epoch = writer.epoch + raises
    assert markers(cluster.partition(0)) == [(3, writer.producer_id, epoch, commit)]
    # Nothing was written there, but it was added.
    assert markers(cluster.partition(1)) == [(0, writer.producer_id, epoch, commit)]
    assert cluster.partition().last_stable_offset == 4
    transactions = list(aborts.within(cluster.partition().aborted, 0, 4))
    expected = [] if commit else [AbortedTransaction(writer.producer_id, 0, 3, 4)]
    assert transactions == expected
    assert not cluster.partition(1).aborted
    row = cluster.partition().row(1)
    assert (row.max_timestamp, row.size, row.object_id) == (2000, 78, 0)


def test_marker_has_the_append_time_of_its_topic() -> None:
    cluster = Cluster()
    writer = cluster.init()
    cluster.write(writer, topic=STAMPED)
    partition = cluster.partition(topic=STAMPED)
    partition.append_time = 5000
    cluster.end(writer, commit=True)
    assert partition.row(1).max_timestamp == 5000
    assert partition.row(1).is_append_time


@pytest.mark.parametrize("raises", [True, False])
def test_repeated_end_gets_the_same_answer(*, raises: bool) -> None:
    cluster = Cluster()
    writer = cluster.init()
    cluster.write(writer)
    first = cluster.end(writer, commit=True, raises=raises)
    again = cluster.end(writer, commit=True, raises=raises)
    assert again == first
    assert len(markers(cluster.partition())) == 1
    other = cluster.end(writer, commit=False, raises=raises)
    assert other.error is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("commit", "raises", "code"),
    [
        (True, True, ErrorCode.INVALID_TXN_STATE),
        (True, False, ErrorCode.INVALID_TXN_STATE),
        (False, False, ErrorCode.INVALID_TXN_STATE),
        (False, True, ErrorCode.NONE),
    ],
)
def test_end_without_a_transaction_writes_no_marker(
    *, commit: bool, raises: bool, code: ErrorCode
) -> None:
    cluster = Cluster()
    writer = cluster.init()
    assert cluster.end(writer, commit=commit, raises=raises).error is code
    assert cluster.partition().next_offset == 0


def test_delayed_end_does_not_affect_the_next_transaction() -> None:
    cluster = Cluster()
    writer = cluster.init()
    cluster.write(writer)
    after = cluster.end(writer, commit=True).value
    cluster.write(after)
    assert cluster.end(writer, commit=False).error is ErrorCode.PRODUCER_FENCED
    assert cluster.end(writer, commit=True).error is ErrorCode.PRODUCER_FENCED
    assert cluster.partition().last_stable_offset == 2


def test_overdue_transaction_is_aborted_and_its_producer_fenced() -> None:
    cluster = Cluster()
    writer = cluster.init()
    cluster.write(writer)
    started = cluster.state.transactions.by_id["x"].started
    stale = TransactionExpired(transactional_id="x", started=started - 1)
    assert cluster.say(stale).error is not ErrorCode.NONE
    assert cluster.partition().ongoing
    assert cluster.say(TransactionExpired(transactional_id="x", started=started)).error is (
        ErrorCode.NONE
    )
    assert markers(cluster.partition()) == [(1, writer.producer_id, 1, False)]
    assert cluster.end(writer, commit=True).error is ErrorCode.PRODUCER_FENCED
    assert cluster.say(initialised(known=writer)).error is ErrorCode.PRODUCER_FENCED


def test_expiry_of_an_earlier_transaction_is_void() -> None:
    cluster = Cluster()
    writer = cluster.init()
    cluster.write(writer)
    started = cluster.state.transactions.by_id["x"].started
    writer = cluster.end(writer, commit=True).value
    cluster.write(writer)
    late = cluster.say(TransactionExpired(transactional_id="x", started=started))
    assert late.error is not ErrorCode.NONE
    assert cluster.end(writer, commit=True).error is ErrorCode.NONE


def test_transactional_id_expires_only_if_unchanged() -> None:
    cluster = Cluster()
    writer = cluster.init()
    changed = cluster.state.transactions.by_id["x"].changed
    cluster.write(writer)
    gone = TransactionalIdExpired(transactional_id="x", changed=changed)
    assert cluster.say(gone).error is not ErrorCode.NONE
    cluster.end(writer, commit=True)
    assert cluster.say(gone).error is not ErrorCode.NONE
    gone.changed = cluster.state.transactions.by_id["x"].changed
    assert cluster.say(gone).error is ErrorCode.NONE
    assert not cluster.state.transactions.by_id
    assert not cluster.state.transactions.by_producer


def test_markers_of_others_end_only_orphaned_transactions() -> None:
    cluster = Cluster()
    writer = cluster.init()
    cluster.write(writer)
    marker = MarkersWritten(
        producer_id=writer.producer_id,
        producer_epoch=writer.epoch,
        is_commit=False,
        places=[
            TransactionPlace(topic_id=TOPIC, partition=0),
            TransactionPlace(topic_id=TOPIC, partition=1),
            TransactionPlace(topic_id=TOPIC, partition=9),
        ],
    )
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.say(marker).value == [ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE, unknown]
    assert cluster.partition(1).next_offset == 0
    # As a lost cluster log may leave it: records without a transaction.
    cluster.state.transactions.by_id["x"].partitions.clear()
    assert cluster.say(marker).value[0] is ErrorCode.NONE
    assert markers(cluster.partition()) == [(1, writer.producer_id, 0, False)]
    assert cluster.partition().aborted


def test_deleted_topic_does_not_prevent_the_end_of_a_transaction() -> None:
    cluster = Cluster()
    writer = cluster.init()
    cluster.write(writer)
    cluster.say(TopicDeleted(topic_id=TOPIC))
    assert cluster.end(writer, commit=True).error is ErrorCode.NONE


# Offsets.


def offset(value: int, partition: int = 0) -> OffsetCommitted:
    return OffsetCommitted(
        topic_id=TOPIC, partition=partition, offset=value, leader_epoch=-1, metadata="m"
    )


def pending(
    writer: TransactionOwner, *offsets: OffsetCommitted, joins: bool = True, epoch: int = 1
) -> Any:
    return TransactionOffsetsCommitted(
        **named("x", writer),
        group_id="g",
        group_epoch=epoch,
        offsets=list(offsets),
        joins=joins,
    )


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_are_committed_with_the_transaction(*, commit: bool) -> None:
    cluster = Cluster()
    writer = cluster.init()
    cluster.say(GroupClaimed(group_id="g"))
    assert cluster.say(pending(writer, offset(7), offset(3, 9))).value == [
        ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]  # fmt: skip
    cluster.write(writer)
    group = cluster.state.groups.by_id["g"]
    transactions = cluster.state.transactions
    assert group.offset(TOPIC, 0) is None
    assert transactions.holds("g", TOPIC, 0)
    assert not transactions.holds("g", TOPIC, 1)
    cluster.end(writer, commit=commit)
    committed = group.offset(TOPIC, 0)
    assert (committed.offset if committed else None) == (7 if commit else None)
    assert not transactions.holds("g", TOPIC, 0)
    assert not transactions.by_group


def test_offsets_of_a_group_not_added_or_led_by_another_are_refused() -> None:
    cluster = Cluster()
    writer = cluster.init()
    cluster.say(GroupClaimed(group_id="g"))
    refused = cluster.say(pending(writer, offset(7), joins=False))
    assert refused.error is ErrorCode.INVALID_TXN_STATE
    assert cluster.say(pending(writer, offset(7), epoch=9)).error is ErrorCode.NOT_COORDINATOR
    cluster.say(OffsetsAddedToTransaction(**named("x", writer), group_id="g"))
    assert cluster.say(pending(writer, offset(7), joins=False)).error is ErrorCode.NONE
    old = TransactionOwner(writer.producer_id, writer.epoch + 1)
    assert cluster.say(pending(old, offset(8))).error is ErrorCode.PRODUCER_FENCED


def test_group_deleted_during_a_transaction_is_recreated_by_its_commit() -> None:
    cluster = Cluster()
    writer = cluster.init()
    cluster.say(GroupClaimed(group_id="g"))
    cluster.say(pending(writer, offset(7)))
    version = cluster.state.groups.by_id["g"].version
    cluster.say(GroupDeleted(group_id="g", epoch=1, version=version))
    assert "g" not in cluster.state.groups.by_id
    cluster.end(writer, commit=True)
    committed = cluster.state.groups.by_id["g"].offset(TOPIC, 0)
    assert committed is not None
    assert committed.offset == 7


# The list of aborted transactions.


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40), st.data())
def test_aborted_lists_equal_those_of_a_full_scan(
    steps: list[tuple[int, bool]], data: st.DataObject
) -> None:
    rows, plain, firsts, at = array("q"), [], dict[int, int](), 0
    for producer_id, ends in steps:
        if ends and producer_id in firsts:
            first = firsts.pop(producer_id)
            transaction = AbortedTransaction(
                producer_id, first, at, min([*firsts.values(), at + 1])
            )
            aborts.add(rows, transaction)
            plain.append(transaction)
        else:
            firsts.setdefault(producer_id, at)
        at += 1
    start = data.draw(st.integers(0, at))
    rows = aborts.after(rows, start)
    begin = data.draw(st.integers(start, at))
    end = data.draw(st.integers(begin, at))
    # A search is for decided offsets only: nothing that is still open begins below its end.
    end = min([end, *firsts.values()])
    expected = [
        transaction
        for transaction in plain
        if transaction.first_offset < end and transaction.last_offset >= begin
    ]
    assert list(aborts.within(rows, begin, end)) == expected


# Everything together, against a model.


class Batch(NamedTuple):
    """What the model knows of offsets: whose they are, and which transaction's."""

    base: int
    end: int
    producer_id: int
    transaction: int  # -1: none
    ends: bool | None = None
    """Of a marker: whether it commits."""


class World(RuleBasedStateMachine):
    """Producers of three ids write to two partitions, and readers see exactly what is committed."""

    @initialize()
    def begin(self) -> None:
        self.cluster = Cluster()
        self.logs: list[list[Batch]] = [[], []]
        self.writers: dict[str, TransactionOwner] = {}
        self.zombies: list[TransactionOwner] = []
        self.open: dict[str, int] = {}
        self.touched: dict[str, set[int]] = {}
        self.fates: list[bool | None] = []

    names = st.sampled_from(["x", "y", "z"])
    indexes = st.integers(0, 1)

    @rule(name=names, names_itself=st.booleans())
    def init(self, name: str, *, names_itself: bool) -> None:
        old = self.writers.get(name)
        if old is not None:
            self.zombies.append(old)
        self._end(name, commit=False)
        self.writers[name] = self.cluster.init(name, old if names_itself else None)

    @rule(name=names, index=indexes, records=st.integers(1, 3), joins=st.booleans())
    def write(self, name: str, index: int, records: int, *, joins: bool) -> None:
        writer = self.writers.get(name)
        if writer is None:
            return
        is_added = index in self.touched.get(name, ())
        appended = self.cluster.write(writer, index, records, joins=joins)
        if not joins and not is_added:
            assert appended.error is ErrorCode.INVALID_TXN_STATE
            return
        assert appended.error is ErrorCode.NONE
        self._touch(name, index)
        self._append(index, records, writer.producer_id, self.open[name])

    @rule(name=names, index=indexes)
    def add(self, name: str, index: int) -> None:
        if name in self.writers:
            code = self.cluster.add(self.writers[name], index, name=name)
            assert code is ErrorCode.NONE
            self._touch(name, index)

    @rule(index=indexes, records=st.integers(1, 3))
    def write_plain(self, index: int, records: int) -> None:
        appended = self.cluster.write(
            TransactionOwner(1 << 40, 0), index, records, is_transactional=False
        )
        assert appended.error is ErrorCode.NONE
        self._append(index, records, 1 << 40, -1)

    @precondition(lambda self: self.zombies)
    @rule(index=indexes, joins=st.booleans(), commit=st.booleans(), data=st.data())
    def disturb(self, index: int, *, joins: bool, commit: bool, data: st.DataObject) -> None:
        zombie = data.draw(st.sampled_from(self.zombies))
        assert self.cluster.write(zombie, index, joins=joins).error is not ErrorCode.NONE
        for name in self.writers:
            assert self.cluster.add(zombie, index, name=name) is not ErrorCode.NONE
            outcome = self.cluster.end(zombie, commit=commit, raises=False, name=name)
            assert outcome.error is not ErrorCode.NONE

    @rule(name=names, commit=st.booleans(), raises=st.booleans())
    def end(self, name: str, *, commit: bool, raises: bool) -> None:
        writer = self.writers.get(name)
        if writer is None or name not in self.open:
            return
        outcome = self.cluster.end(writer, commit=commit, raises=raises, name=name)
        assert outcome.error is ErrorCode.NONE
        self._end(name, commit=commit)
        if raises:
            self.zombies.append(writer)
            self.writers[name] = outcome.value

    @rule(name=names)
    def expire(self, name: str) -> None:
        transaction = self.cluster.state.transactions.open.get(name)
        if transaction is None:
            return
        started = transaction.started
        self.zombies.append(self.writers.pop(name))
        outcome = self.cluster.say(TransactionExpired(transactional_id=name, started=started))
        assert outcome.error is ErrorCode.NONE
        self._end(name, commit=False)

    @rule(index=indexes, data=st.data())
    def move_start(self, index: int, data: st.DataObject) -> None:
        partition = self.cluster.partition(index)
        start = data.draw(st.integers(partition.log_start, partition.next_offset))
        self.cluster.say(LogStartMoved(topic_id=TOPIC, partition=index, offset=start))

    @rule()
    def restart(self) -> None:
        self.cluster.state = read_image(write_image(self.cluster.state))

    @invariant()
    def markers_are_where_transactions_ended(self) -> None:
        for index, log in enumerate(self.logs):
            partition = self.cluster.partition(index)
            kept = [
                (batch.base, batch.producer_id, batch.ends)
                for batch in log
                if batch.ends is not None and batch.base >= partition.log_start
            ]
            written = [(at, who, commit) for at, who, _, commit in markers(partition)]
            assert [marker for marker in written if marker[0] >= partition.log_start] == kept

    @invariant()
    def the_last_stable_offset_is_before_what_is_open(self) -> None:
        for index, log in enumerate(self.logs):
            partition = self.cluster.partition(index)
            undecided = [
                batch.base
                for batch in log
                if batch.transaction >= 0 and self.fates[batch.transaction] is None
            ]
            first = min(undecided, default=partition.next_offset)
            assert partition.last_stable_offset == max(first, partition.log_start)

    @invariant()
    def readers_see_what_is_committed(self) -> None:
        for index, log in enumerate(self.logs):
            partition = self.cluster.partition(index)
            stable = partition.last_stable_offset
            for start in {partition.log_start, (partition.log_start + stable) // 2}:
                truth = [
                    batch.base
                    for batch in log
                    if start < batch.end <= stable
                    and batch.ends is None
                    and (batch.transaction < 0 or self.fates[batch.transaction])
                ]
                assert _read(log, partition, start, stable) == truth

    def _append(self, index: int, records: int, producer_id: int, transaction: int) -> None:
        log = self.logs[index]
        base = log[-1].end if log else 0
        log.append(Batch(base, base + records, producer_id, transaction))

    def _touch(self, name: str, index: int) -> None:
        if name not in self.open:
            self.open[name] = len(self.fates)
            self.fates.append(None)
        self.touched.setdefault(name, set()).add(index)

    def _end(self, name: str, *, commit: bool) -> None:
        if name not in self.open:
            return
        self.fates[self.open.pop(name)] = commit
        for index in self.touched.pop(name):
            log = self.logs[index]
            base = log[-1].end if log else 0
            who = self.cluster.state.transactions.by_id[name].writer.producer_id
            log.append(Batch(base, base + 1, who, -1, commit))


def _read(log: list[Batch], partition: Partition, start: int, until: int) -> list[int]:
    """Read as clients do: skip the producers of aborted transactions up to their markers."""
    waiting = sorted(
        aborts.within(partition.aborted, start, until), key=lambda transaction: transaction[1]
    )
    skipped: set[int] = set()
    offsets = []
    for batch in log:
        # Where the log begins within an open batch, nothing can be read at all.
        if batch.end <= start or batch.base >= until or start == until:
            continue
        while waiting and waiting[0].first_offset <= batch.end - 1:
            skipped.add(waiting.pop(0).producer_id)
        if batch.ends is not None:
            if not batch.ends:
                skipped.discard(batch.producer_id)
        elif batch.producer_id not in skipped:
            offsets.append(batch.base)
    return offsets


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
