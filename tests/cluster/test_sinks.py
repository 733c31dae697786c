"""Sinks: a batch is committed whole and once, and staged objects are neither lost nor kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.cluster.entry import EntryAuthor, read_entry, read_events, write_entry
from rookery.cluster.events.brokerevents import ClusterCreated, ProcessRegistered, SettingChange
from rookery.cluster.events.logevents import BatchesCommitted, Extent, ObjectsCondemned
from rookery.cluster.events.sinkevents import (
    SinkAborted,
    SinkCommitted,
    SinkForgotten,
    SinkPartStaged,
    StagedRun,
)
from rookery.cluster.events.topicevents import TopicCreated, TopicDeleted
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.cluster.state.images.image import read_image, write_image
from rookery.cluster.state.partition import Partition
from rookery.cluster.state.rules import sinkrules
from rookery.cluster.state.rules.sinkrules import MAX_STAGED_MS
from rookery.cluster.state.state import EntryOutcome, State
from rookery.errors import ErrorCode
from rookery.log.check.offsets import check_state
from rookery.testing.clock import ManualClock
from rookery.wire.message import Message

TOPIC = bytes(range(16))
BEGIN = 100
STORED = 1 << 23


def setting_up() -> list[Message]:
    return [
        ClusterCreated(cluster_id="c", feature_level=1),
        ProcessRegistered(process_id=TOPIC, purpose="sink"),
    ]


def topic(**configs: str) -> TopicCreated:
    changes = [SettingChange(name=name.replace("_", "."), value=configs[name]) for name in configs]
    return TopicCreated(
        topic_id=TOPIC, name="t", partitions=2, replication_factor=1, configs=changes
    )


def run(partition: int = 0, records: int = 10, size: int = 50, time: int = 7) -> StagedRun:
    return StagedRun(
        topic_id=TOPIC, partition=partition, size=size, records=records, max_timestamp=time
    )


def staged(number: int, *runs: StagedRun, batch: int = 0, **more: Any) -> SinkPartStaged:
    values: dict[str, Any] = {
        "sink_id": "s",
        "query_id": "q",
        "part": 0,
        "parts": 1,
        "position": BEGIN,
    } | more
    return SinkPartStaged(
        **values, batch_id=batch, object_id=thing(number), runs=list(runs or [run()])
    )


def thing(number: int) -> int:
    return 2 << 24 | STORED | number


def committed(*numbers: int, batch: int = 0, **more: Any) -> SinkCommitted:
    values: dict[str, Any] = {
        "sink_id": "s",
        "query_id": "q",
        "source_offsets": f"at {batch}",
    } | more
    return SinkCommitted(**values, batch_id=batch, object_ids=[thing(number) for number in numbers])


class World:
    """A process that says things, each at a time."""

    def __init__(self, **configs: str) -> None:
        self.state = State()
        self.sequence = 0
        for event in setting_up():
            self.say(event, is_stranger=True)
        self.say(topic(**configs))

    def say(self, event: Message, stamp: int = 1000, *, is_stranger: bool = False) -> EntryOutcome:
        if not is_stranger:
            self.sequence += 1
        writer = EntryAuthor(
            0 if is_stranger else 2, 0 if is_stranger else self.sequence, stamp, 0, 0
        )
        number = self.state.applied + 1
        entry = read_entry(number, write_entry(writer, [event]))
        return self.state.apply(number, entry, read_events(number, entry))

    def error(self, event: Message, stamp: int = 1000) -> ErrorCode:
        return self.say(event, stamp).outcomes[0].error

    def value(self, event: Message, stamp: int = 1000) -> Any:
        outcome = self.say(event, stamp).outcomes[0]
        assert outcome.error is ErrorCode.NONE
        return outcome.value

    def partition(self, index: int = 0) -> Partition:
        return self.state.topics.by_id[TOPIC].partitions[index]

    def rows(self, index: int = 0) -> list[tuple[int, int, int, int]]:
        partition = self.partition(index)
        rows = [partition.row(at) for at in range(len(partition.base_offsets))]
        return [(row.base_offset, row.end_offset, row.object_id, row.position) for row in rows]


def test_staged_parts_get_their_offsets_in_order_at_the_commit() -> None:
    world = World()
    assert world.error(staged(1, run(0, 3, 40), run(1, 4, 60), run(0, 2, 50))) is ErrorCode.NONE
    assert world.error(staged(2, run(0, 5))) is ErrorCode.NONE
    assert world.partition(0).next_offset == world.partition(1).next_offset == 0
    applied = world.say(committed(2, 1))
    assert world.rows(0) == [
        (0, 5, thing(2), BEGIN), (5, 8, thing(1), BEGIN), (8, 10, thing(1), BEGIN + 100)
    ]  # fmt: skip
    assert world.rows(1) == [(0, 4, thing(1), BEGIN + 40)]
    assert sorted(applied.grown) == [(TOPIC, 0), (TOPIC, 1)]  # waiting readers are woken
    assert [row[1:] for row in applied.outcomes[0].value.ranges] == [(0, 0, 10, -1), (1, 0, 4, -1)]
    assert world.state.sinks.by_id["s"].source_offsets == "at 0"
    assert not world.state.sinks.staged
    assert not world.state.sinks.staged_bytes
    assert world.state.objects.rows == {thing(1): 3, thing(2): 1}
    assert not list(check_state(world.state))


def test_repeated_batch_is_reported_and_has_no_effect() -> None:
    world = World()
    world.say(staged(1))
    world.say(committed(1))
    again = world.value(committed(1))
    assert again.is_repeated
    assert not again.ranges
    assert world.partition().next_offset == 10
    # A run that was started again after the commit has objects of its own.
    assert world.error(staged(2)) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert world.value(committed(2)).is_repeated


@pytest.mark.parametrize(
    ("last", "event", "expected"),
    [
        (("q", 4), committed(2, batch=5), ErrorCode.NONE),
        (("q", 4), committed(2, batch=9), ErrorCode.NONE),  # batches without rows are left out
        (("q", 4), committed(2, batch=3), ErrorCode.DUPLICATE_SEQUENCE_NUMBER),
        (("p", 4), committed(2, batch=5), ErrorCode.PRODUCER_FENCED),
        (("p", 4), committed(2, batch=4), ErrorCode.PRODUCER_FENCED),
        (("p", 4), committed(2, batch=0, takes_over=True), ErrorCode.NONE),
        (("q", 4), committed(2, batch=3, takes_over=True), ErrorCode.NONE),
    ],
)
def test_order_of_queries_and_batches_of_a_sink_is_enforced(
    last: tuple[str, int], event: SinkCommitted, expected: ErrorCode
) -> None:
    world = World()
    world.say(staged(1, batch=last[1], query_id=last[0]))
    world.say(committed(1, batch=last[1], query_id=last[0]))
    world.say(staged(2, batch=event.batch_id))
    outcome = world.say(event).outcomes[0]
    assert outcome.error is expected
    if expected is ErrorCode.NONE:
        assert not outcome.value.is_repeated
        assert world.partition().next_offset == 20
    else:
        assert outcome.value == last  # so that the writer can say who it is
        assert world.partition().next_offset == 10


def test_takeover_does_not_allow_writing_a_batch_twice() -> None:
    world = World()
    world.say(staged(1))
    world.say(committed(1, takes_over=True))
    assert world.value(committed(1, takes_over=True)).is_repeated


def test_write_without_a_sink_id_is_not_recorded() -> None:
    world = World()
    world.say(staged(1, sink_id="", query_id="one"))
    world.say(staged(2, sink_id="", query_id="other"))
    world.say(committed(1, sink_id="", query_id="one"))
    assert not world.state.sinks.by_id
    assert list(world.state.sinks.staged) == [thing(2)]  # the other write continues
    assert world.value(committed(2, sink_id="", query_id="other")).ranges
    assert world.error(committed(2, sink_id="", query_id="other")) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    "event",
    [
        committed(1, 3),  # never staged
        committed(1, 2),  # staged in part
        committed(1, batch=1),  # for another batch
        committed(1, query_id="p"),
        committed(1, sink_id="t"),
    ],
)
def test_incompletely_staged_commit_is_refused_whole(event: SinkCommitted) -> None:
    world = World()
    world.say(staged(1))
    world.say(staged(2, parts=2))
    assert world.error(event) is ErrorCode.INVALID_TXN_STATE
    assert world.partition().next_offset == 0
    assert thing(1) in world.state.sinks.staged


def test_parts_of_an_object_are_staged_in_order() -> None:
    world = World()
    assert world.error(staged(1, part=1, parts=2)) is ErrorCode.INVALID_REQUEST
    world.say(staged(1, run(0, 1, 30), part=0, parts=2))
    assert world.error(staged(1, part=0, parts=2)) is ErrorCode.INVALID_REQUEST
    assert world.error(staged(1, part=1, parts=3)) is ErrorCode.INVALID_REQUEST
    assert world.error(staged(1, part=1, parts=2, query_id="p")) is ErrorCode.INVALID_REQUEST
    world.say(staged(1, run(0, 2), part=1, parts=2, position=BEGIN + 30))
    world.say(committed(1))
    # They are adjacent, so they are one row.
    assert world.rows() == [(0, 3, thing(1), BEGIN)]
    assert world.state.objects.rows == {thing(1): 1}


@pytest.mark.parametrize(
    "event",
    [
        staged(1, parts=0),
        staged(1, part=-1),
        staged(1, position=-1),
        staged(1, run(size=0)),
        staged(1, run(records=0)),
        staged(1, batch=-1),
        staged(1, sink_id="s" * 256),
        SinkPartStaged(
            sink_id="s", query_id="q", batch_id=0, object_id=5, part=0, parts=1, position=0, runs=[]
        ),
        staged(1, *[run()] * 2001),
    ],
)
def test_invalid_part_changes_nothing(event: SinkPartStaged) -> None:
    world = World()
    assert world.error(event) is ErrorCode.INVALID_REQUEST
    assert not world.state.sinks.staged
    assert not world.state.objects.rows


def test_object_is_committed_only_once() -> None:
    world = World()
    world.say(staged(1))
    assert world.error(committed(1, 1)) is ErrorCode.INVALID_REQUEST
    world.say(committed(1))
    assert world.error(staged(1, batch=1)) is ErrorCode.INVALID_REQUEST
    assert world.error(committed(1, batch=1)) is ErrorCode.INVALID_TXN_STATE


def test_an_abort_after_the_commit_is_void() -> None:
    world = World()
    world.say(staged(1))
    world.say(committed(1))
    assert world.value(SinkAborted(object_ids=[thing(1)])) == []
    assert not world.state.objects.condemned
    assert world.rows() == [(0, 10, thing(1), BEGIN)]


def test_commit_after_its_abort_is_refused() -> None:
    world = World()
    world.say(staged(1))
    unstaged = thing(2)  # it was uploaded, and its writer died
    assert world.value(SinkAborted(object_ids=[thing(1), unstaged])) == [thing(1), unstaged]
    assert world.error(committed(1)) is ErrorCode.INVALID_TXN_STATE
    assert world.error(staged(1)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.partition().next_offset == 0
    assert not list(check_state(world.state))


def test_staged_object_cannot_be_condemned_by_others() -> None:
    world = World()
    world.say(staged(1))
    assert world.value(ObjectsCondemned(object_ids=[thing(1)])) == []
    assert not list(world.state.objects.empty([]))
    assert world.value(committed(1)).ranges


def test_commit_condemns_objects_its_sink_can_no_longer_commit() -> None:
    world = World()
    world.say(staged(1))
    world.say(staged(2))  # of an attempt that failed
    world.say(staged(3, query_id="p"))  # of a query that is gone
    world.say(staged(4, batch=1))  # the next one
    world.say(staged(5, sink_id="t"))  # another sink
    world.say(committed(1))
    assert list(world.state.sinks.staged) == [thing(4), thing(5)]
    assert list(world.state.objects.condemned) == [thing(2), thing(3)]
    assert not list(check_state(world.state))


def test_uncommitted_objects_are_condemned_after_a_time_limit() -> None:
    world = World()
    world.say(staged(1), stamp=1000)
    world.say(staged(2, sink_id="t"), stamp=1000 + MAX_STAGED_MS - 1)
    assert thing(1) in world.state.sinks.staged
    world.say(staged(3, sink_id="t"), stamp=1000 + MAX_STAGED_MS)
    assert thing(1) in world.state.objects.condemned
    assert list(world.state.sinks.staged) == [thing(2), thing(3)]


def test_staged_amount_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinkrules, "MAX_STAGED_RUNS", 3)
    world = World()
    world.say(staged(1, run(), run()))
    assert world.error(staged(2, run(), run())) is ErrorCode.POLICY_VIOLATION
    assert world.error(staged(3)) is ErrorCode.NONE
    world.say(committed(1, 3))
    assert world.error(staged(4, run(), run(), run(), batch=1)) is ErrorCode.NONE


def test_number_of_sinks_is_bounded_and_a_sink_can_be_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sinkrules, "MAX_SINKS", 1)
    world = World()
    world.say(committed())
    assert world.error(committed(sink_id="t")) is ErrorCode.POLICY_VIOLATION
    assert world.error(committed(batch=1)) is ErrorCode.NONE
    assert world.error(SinkForgotten(sink_id="s")) is ErrorCode.NONE
    assert world.error(SinkForgotten(sink_id="s")) is ErrorCode.RESOURCE_NOT_FOUND
    assert world.error(committed(sink_id="t")) is ErrorCode.NONE


def test_empty_batch_is_recorded() -> None:
    world = World()
    assert not world.value(committed()).is_repeated
    assert world.value(committed()).is_repeated


def test_commit_to_a_deleted_topic_is_refused_whole() -> None:
    world = World()
    world.say(staged(1))
    world.say(TopicDeleted(topic_id=TOPIC))
    assert world.error(committed(1)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.error(staged(2)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.value(SinkAborted(object_ids=[thing(1)])) == [thing(1)]


def test_append_time_is_that_of_the_commit_and_monotonic() -> None:
    world = World(message_timestamp_type="LogAppendTime")
    world.say(staged(1), stamp=1000)
    assert world.value(committed(1), stamp=5000).ranges[0].append_time_ms == 5000
    world.say(staged(2, batch=1), stamp=2000)
    assert world.value(committed(2, batch=1), stamp=2000).ranges[0].append_time_ms == 5000
    row = world.partition().row(0)
    assert (row.is_append_time, row.max_timestamp) == (True, 5000)


def test_rows_without_a_timestamp_are_dated_by_their_commit() -> None:
    world = World()
    world.say(staged(1, run(time=-1)))
    world.say(committed(1), stamp=4321)
    assert world.partition().row(0).max_timestamp == 4321


def test_sink_commits_interleave_with_producers() -> None:
    world = World()
    extent = Extent(
        topic_id=TOPIC, partition=0, position=0, size=9, records=1, attributes=0, max_timestamp=5,
        producer_id=-1, producer_epoch=-1, base_sequence=-1,
    )  # fmt: skip
    world.say(staged(1))
    world.say(BatchesCommitted(object_id=9 << 24, extents=[extent]))
    world.say(committed(1))
    world.say(BatchesCommitted(object_id=10 << 24, extents=[extent]))
    assert [row[:2] for row in world.rows()] == [(0, 1), (1, 11), (11, 12)]


# Any history: replicas agree, a snapshot may come anywhere, and nothing is miscounted.

_EVENTS: st.SearchStrategy[Message] = st.one_of(
    st.builds(
        staged,
        st.integers(1, 6),
        st.builds(run, st.integers(0, 1), st.integers(1, 5), st.integers(1, 99)),
        batch=st.integers(0, 3),
        query_id=st.sampled_from(["q", "p"]),
        sink_id=st.sampled_from(["s", ""]),
    ),
    st.builds(
        committed,
        st.integers(1, 6),
        batch=st.integers(0, 3),
        query_id=st.sampled_from(["q", "p"]),
        sink_id=st.sampled_from(["s", ""]),
        takes_over=st.booleans(),
    ),
    st.builds(lambda number: SinkAborted(object_ids=[thing(number)]), st.integers(1, 6)),
    st.builds(lambda number: ObjectsCondemned(object_ids=[thing(number)]), st.integers(1, 6)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_EVENTS, max_size=30), st.integers(0, 30))
def test_any_history_is_consistent_and_survives_a_snapshot(events: list[Message], cut: int) -> None:
    world, other = World(), World()
    for number, event in enumerate(events):
        if number == cut:
            other.state = read_image(write_image(other.state))
        before = world.partition().next_offset + world.partition(1).next_offset
        outcome = world.say(event, stamp=1000 + number).outcomes[0]
        other.say(event, stamp=1000 + number)
        after = world.partition().next_offset + world.partition(1).next_offset
        has_grown = isinstance(event, SinkCommitted) and outcome.error is ErrorCode.NONE
        assert (after > before) == (has_grown and not outcome.value.is_repeated)
    assert write_image(world.state) == write_image(other.state)
    assert world.state.objects.rows == other.state.objects.rows
    assert world.state.sinks.staged_bytes == sum(
        len(each.packed) for each in world.state.sinks.staged.values()
    )
    assert not list(check_state(world.state))


@pytest.mark.parametrize("scheme", ["memory", "sqlite", "store"])
async def test_two_processes_agree_over_a_real_log(scheme: str, tmp_path: Path) -> None:
    """One stages, another commits; both, and one that comes later, have the same."""
    clock = ManualClock()
    (tmp_path / "store").mkdir()
    url = {
        "memory": f"memory:{tmp_path}",
        "sqlite": f"sqlite://{tmp_path / 'cluster.sqlite'}",
        "store": f"store:file://{tmp_path / 'store'}",
    }[scheme]
    logs = [open_log(url) for _ in range(3)]
    writer, driver, late = (Replica(log, clock) for log in logs)
    await writer.open(follow=False)
    await writer.create_cluster(setting_up()[0])
    await driver.open(follow=False)
    for replica in (writer, driver):
        await replica.register(ProcessRegistered(process_id=TOPIC, purpose="sink"))
    await writer.propose([topic()])
    many = [run(0, 1, 10)] * 2000
    for part in range(3):  # more than one entry may hold
        event = staged(1, *many, part=part, parts=3, position=BEGIN + part * 20_000)
        [outcome] = await writer.propose([event])
        assert outcome.error is ErrorCode.NONE
    [outcome] = await driver.propose([committed(1)])
    assert outcome.value.ranges[0][2:4] == (0, 6000)
    await writer.barrier()
    await late.open(follow=False)
    assert write_image(writer.state) == write_image(driver.state) == write_image(late.state)
    for replica, log in zip((writer, driver, late), logs, strict=True):
        await replica.close()
        await log.close()
