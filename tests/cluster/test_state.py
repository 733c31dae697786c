"""The state machine: the same entries give the same state on every path."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.cluster.entry import EntryAuthor, read_entry, read_events, write_entry
from rookery.cluster.events.brokerevents import (
    BrokerRegistered,
    ClusterCreated,
    ConfigsChanged,
    FeatureLevelRaised,
    SettingChange,
)
from rookery.cluster.events.logevents import BatchesCommitted, Extent, ReplacedRange, RowsReplaced
from rookery.cluster.events.topicevents import LogStartMoved, TopicCreated
from rookery.cluster.state.images.image import read_head, read_image, write_image
from rookery.cluster.state.state import EntryOutcome, State
from rookery.cluster.state.topics import leader_of
from rookery.errors import Corrupt, ErrorCode
from rookery.wire.message import Message
from tests.cluster.histories import Historian

TOPIC = bytes(range(16))


def apply(state: State, data: bytes) -> EntryOutcome:
    number = state.applied + 1
    entry = read_entry(number, data)
    return state.apply(number, entry, read_events(number, entry))


def history(seed: int, length: int) -> tuple[State, list[bytes]]:
    state, historian, log = State(), Historian(seed), []
    for _ in range(length):
        data = historian.entry(state)
        log.append(data)
        apply(state, data)
    return state, log


def replay(log: list[bytes], state: State | None = None) -> State:
    state = state or State()
    for data in log:
        apply(state, data)
    return state


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 120))
def test_two_replicas_of_one_log_are_equal(seed: int, length: int) -> None:
    state, log = history(seed, length)
    assert write_image(replay(log)) == write_image(state)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 120), st.integers(0, 120))
def test_snapshot_and_later_entries_equal_a_full_replay(seed: int, length: int, cut: int) -> None:
    state, log = history(seed, length)
    cut = min(cut, length)
    early = read_image(write_image(replay(log[:cut])))
    late = replay(log[cut:], early)
    assert write_image(late) == write_image(state)
    assert late.objects.rows == state.objects.rows


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_offsets_are_dense_and_rows_cover_them(seed: int) -> None:
    state, _ = history(seed, 150)
    rows = 0
    for topic in state.topics:
        for partition in topic.partitions:
            expected = None
            for index in range(len(partition.base_offsets)):
                row = partition.row(index)
                assert row.base_offset < row.end_offset
                assert expected in (None, row.base_offset)
                expected = row.end_offset
                rows += bool(row.object_id)  # a marker has no object
            assert expected in (None, partition.next_offset)
            assert 0 <= partition.log_start <= partition.next_offset
            assert partition.size_bytes == sum(partition.sizes)
    assert rows == sum(state.objects.rows.values())


def test_snapshot_header_names_level_number_and_digest() -> None:
    state = history(5, 80)[0]
    assert read_head(write_image(state)) == (state.feature_level, state.applied, state.digest)


def test_a_damaged_snapshot_is_refused() -> None:
    image = bytearray(write_image(history(3, 60)[0]))
    for at in range(0, len(image), max(1, len(image) // 60)):
        broken = bytearray(image)
        broken[at] ^= 0x40
        with pytest.raises(Corrupt):
            read_image(broken)
        with pytest.raises(Corrupt):
            read_head(broken)


def started(level: int = 1) -> State:
    """A cluster with one broker (incarnation 2) and one topic of two partitions."""
    state = State()
    apply(state, said([ClusterCreated(cluster_id="c", feature_level=level)], 0, 0))
    apply(state, said([BrokerRegistered(process_id=TOPIC, node_id=1, host="h", port=1)], 0, 0))
    topic = TopicCreated(topic_id=TOPIC, name="t", partitions=2, replication_factor=3, configs=[])
    apply(state, said([topic], 2, 1))
    return state


def said(events: list[Message], incarnation: int, sequence: int, stamp: int = 1000) -> bytes:
    return write_entry(EntryAuthor(incarnation, sequence, stamp, 0, 0), events)


def commit(records: int = 3, **changes: int) -> BatchesCommitted:
    values = {
        "partition": 0, "position": 0, "size": 100, "attributes": 0, "max_timestamp": 5,
        "producer_id": -1, "producer_epoch": -1, "base_sequence": -1,
    } | changes  # fmt: skip
    extent = Extent(topic_id=TOPIC, records=records, **values)  # type: ignore[arg-type] # by name
    return BatchesCommitted(object_id=9 << 24, extents=[extent])


def test_repeated_entry_is_applied_once() -> None:
    state = started()
    data = said([commit()], 2, 2)
    assert not apply(state, data).is_void
    assert apply(state, data).is_void
    assert state.topics.by_name["t"].partitions[0].next_offset == 3


def test_an_entry_of_a_fenced_incarnation_is_void() -> None:
    state = started()
    again = BrokerRegistered(process_id=bytes(16), node_id=1, host="h", port=1)
    apply(state, said([again], 0, 0))
    assert apply(state, said([commit()], 2, 2)).is_void
    assert not apply(state, said([commit()], 4, 1)).is_void


def test_unregistered_process_can_only_register() -> None:
    state = started()
    assert apply(state, said([commit()], 0, 0)).is_void
    assert state.topics.by_name["t"].partitions[0].next_offset == 0


def test_a_batch_for_a_deleted_topic_gets_no_offset() -> None:
    state = started()
    event = commit()
    event.extents[0].topic_id = bytes(16)
    outcome = apply(state, said([event], 2, 2)).outcomes[0].value[0]
    assert outcome.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert state.objects.rows == {}


def test_append_time_never_runs_backwards() -> None:
    state = started()
    topic = state.topics.by_name["t"]
    topic.configure("message.timestamp.type", "LogAppendTime")
    times = []
    for sequence, stamp in ((2, 5000), (3, 4000), (4, 6000)):
        done = apply(state, said([commit()], 2, sequence, stamp))
        times.append(done.outcomes[0].value[0].append_time_ms)
    assert times == [5000, 5000, 6000]


@pytest.mark.parametrize(("resource_type", "name"), [(2, "t"), (4, ""), (16, "client metrics x")])
@pytest.mark.parametrize("level", [1, 2])
def test_conditional_config_change_depends_on_the_observed_version(
    level: int, resource_type: int, name: str
) -> None:
    state = started()
    state.feature_level = level

    def change(sequence: int, value: str | None, observed: list[str]) -> ErrorCode:
        event = ConfigsChanged(
            resource_type=resource_type,
            resource_name=name,
            changes=[SettingChange(name="key", value=value)],
            is_conditional=True,
            observed=[SettingChange(name="key", value=old) for old in observed],
        )
        return apply(state, said([event], 2, sequence)).outcomes[0].error

    refused = ErrorCode.INVALID_UPDATE_VERSION if level > 1 else ErrorCode.NONE
    assert change(2, "a", []) is ErrorCode.NONE
    assert change(3, "b", []) is refused
    assert change(4, "c", ["b" if level == 1 else "a"]) is ErrorCode.NONE
    assert change(5, None, ["a"]) is refused
    assert change(6, None, ["c"]) is ErrorCode.NONE
    # Nothing is left of it, and a change that counts for nothing leaves nothing.
    assert change(7, "d", ["c"]) is refused
    assert (name in state.broker_configs) is (level == 1 and resource_type != 2)


def test_a_newer_level_stops_the_program() -> None:
    with pytest.raises(Corrupt, match="newer Rookery"):
        apply(started(), said([FeatureLevelRaised(feature_level=99)], 2, 2))


def test_an_unknown_event_stops_the_program() -> None:
    state = started()
    data = bytearray(said([commit()], 2, 2))
    at = data.index((40).to_bytes(2, "big"))
    data[at : at + 2] = (999).to_bytes(2, "big")
    with pytest.raises(Corrupt, match="event 999"):
        apply(state, bytes(data))


def test_entry_out_of_order_is_refused() -> None:
    state = started()
    entry = read_entry(9, said([commit()], 2, 2))
    with pytest.raises(Corrupt, match="comes after"):
        state.apply(9, entry, read_events(9, entry))


def test_leaders_move_only_when_their_broker_changes() -> None:
    places = [(bytes([n]) * 16, n % 5) for n in range(200)]
    before = [leader_of(*place, [1, 2, 3]) for place in places]
    after = [leader_of(*place, [1, 3]) for place in places]
    assert {1, 2, 3} == set(before)
    assert all(old == new for old, new in zip(before, after, strict=True) if old != 2)
    assert leader_of(*places[0], []) == -1


def test_leader_epoch_starts_at_the_end_offset() -> None:
    state = started()
    partition = state.topics.by_name["t"].partitions[0]
    apply(state, said([commit()], 2, 2))
    partition.lead(7)
    assert (partition.leader_epoch, partition.epochs) == (1, [(0, 0), (1, 3)])
    assert [partition.epoch_at(offset) for offset in (0, 2, 3)] == [0, 0, 1]


def test_a_rewrite_without_pieces_changes_nothing() -> None:
    state = started()
    apply(state, said([commit()], 2, 2))
    partition = state.topics.by_name["t"].partitions[0]
    span = partition.span(0, 3)
    assert span is not None
    emptied = ReplacedRange(
        topic_id=TOPIC, partition=0, base_offset=0, end_offset=3,
        fingerprint=partition.fingerprint(span), kind=0, cleaned_to=-1, pieces=[],
    )  # fmt: skip

    done = apply(state, said([RowsReplaced(object_id=5, ranges=[emptied])], 2, 3))

    assert done.outcomes[0].value == [False]
    assert partition.row(0).object_id == 9 << 24


@pytest.mark.parametrize("level", [1, 2])
def test_leader_epochs_are_removed_one_move_after_their_records(level: int) -> None:
    state = started(level)
    partition = state.topics.by_name["t"].partitions[0]
    for sequence in range(2, 12):  # each with an epoch and an object of its own
        event = commit()
        event.object_id = sequence << 24
        apply(state, said([event], 2, sequence))
        partition.lead(sequence)
    epochs = list(partition.epochs)

    def move(offset: int, sequence: int) -> list[tuple[int, int]]:
        event = LogStartMoved(topic_id=TOPIC, partition=0, offset=offset)
        assert apply(state, said([event], 2, sequence)).outcomes[0].error is ErrorCode.NONE
        return partition.epochs

    assert move(10, 12) == epochs
    # Offsets 9 to 11 are one row: the epoch that it was written in stays.
    assert move(20, 13) == (epochs if level == 1 else epochs[3:])
    assert partition.epoch_at(9) == epochs[3][0]
    assert move(30, 14) == (epochs if level == 1 else epochs[6:])
    assert partition.epoch_at(29) == epochs[9][0]
    assert read_image(write_image(state)).topics.by_name["t"].partitions[0].epochs == (
        partition.epochs
    )


def test_entry_registers_one_process_only() -> None:
    state = started(2)
    twice = [
        BrokerRegistered(process_id=TOPIC, node_id=node_id, host="h", port=1) for node_id in (2, 3)
    ]
    done = apply(state, said([*twice], 0, 0))
    assert [outcome.error for outcome in done.outcomes] == [
        ErrorCode.NONE,
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ]
    again = BrokerRegistered(process_id=TOPIC, node_id=2, host="h", port=1)
    apply(state, said([again], 0, 0))
    assert write_image(read_image(write_image(state))) == write_image(state)
    assert state.brokers.nodes == [1, 2]
