"""Imports: rows with given offsets, only where no record has been written."""

from __future__ import annotations

from typing import Any

import pytest

from rookery.cluster.entry import EntryAuthor, read_entry, read_events, write_entry
from rookery.cluster.events.brokerevents import BrokerRegistered, ClusterCreated, ProcessRegistered
from rookery.cluster.events.importevents import (
    ImportedAbort,
    ImportedBatch,
    ImportedEpoch,
    ImportedProducer,
    ImportedSegment,
    PartitionImported,
    ProducersImported,
    SegmentsImported,
    TransactionalIdImported,
)
from rookery.cluster.events.logevents import (
    BatchesCommitted,
    Extent,
    ObjectsCondemned,
    SegmentsStaged,
    StagedSegment,
)
from rookery.cluster.events.topicevents import TopicCreated
from rookery.cluster.events.txnevents import (
    MarkersWritten,
    TransactionInitialised,
    TransactionPlace,
)
from rookery.cluster.state import producers
from rookery.cluster.state.images.image import read_image, write_image
from rookery.cluster.state.partition import Partition
from rookery.cluster.state.producers import NEW, OUT_OF_ORDER, judge
from rookery.cluster.state.state import State
from rookery.errors import ErrorCode
from rookery.log.check.offsets import check_state
from rookery.wire.message import Message

TOPIC = bytes(range(16))
STORED = 1 << 23
NONE, BEYOND = ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE


class World:
    """A process that imports, and the cluster it does so to."""

    def __init__(self, *, with_broker: bool = False) -> None:
        self.state = State()
        self.sequence = 0
        strangers: list[Message] = [
            ClusterCreated(cluster_id="c", feature_level=1),
            ProcessRegistered(process_id=TOPIC, purpose="import"),
        ]
        if with_broker:
            strangers.append(
                BrokerRegistered(process_id=TOPIC[::-1], node_id=1, host="h", port=9092)
            )
        for event in strangers:
            self.say(event, is_stranger=True)
        self.say(
            TopicCreated(topic_id=TOPIC, name="t", partitions=2, replication_factor=1, configs=[])
        )

    def say(self, *events: Message, is_stranger: bool = False) -> list[ErrorCode]:
        if not is_stranger:
            self.sequence += 1
        writer = EntryAuthor(
            0 if is_stranger else 2, 0 if is_stranger else self.sequence, 1000, 0, 0
        )
        number = self.state.applied + 1
        entry = read_entry(number, write_entry(writer, list(events)))
        done = self.state.apply(number, entry, read_events(number, entry))
        return [outcome.error for outcome in done.outcomes]

    @property
    def partition(self) -> Partition:
        return self.state.topics.by_id[TOPIC].partitions[0]

    def rows(self) -> list[tuple[int, int]]:
        rows = [self.partition.row(index) for index in range(len(self.partition.base_offsets))]
        assert all(row.is_segment and row.is_final for row in rows)
        return [(row.base_offset, row.end_offset) for row in rows]


def thing(number: int) -> int:
    return 2 << 24 | STORED | number


def staged(number: int, base: int) -> SegmentsStaged:
    segment = StagedSegment(object_id=thing(number), topic_id=TOPIC, partition=0, base_offset=base)
    return SegmentsStaged(segments=[segment])


def imported(base: int, *segments: tuple[int, int]) -> SegmentsImported:
    return SegmentsImported(
        topic_id=TOPIC,
        partition=0,
        base_offset=base,
        segments=[
            ImportedSegment(object_id=thing(number), end_offset=end, size=500, max_timestamp=77)
            for number, end in segments
        ],
    )


def whole(start: int, end: int, *epochs: tuple[int, int], **more: Any) -> PartitionImported:
    values: dict[str, Any] = {"cleaned_to": 0, "append_time": -1} | more
    return PartitionImported(
        topic_id=TOPIC,
        partition=0,
        log_start=start,
        end_offset=end,
        epochs=[ImportedEpoch(epoch=epoch, start_offset=begin) for epoch, begin in epochs],
        **values,
    )


def told(end: int, *, first_offset: int = -1, epoch: int = 3) -> ProducersImported:
    batches = [
        ImportedBatch(first_sequence=0, records=5, base_offset=100),
        ImportedBatch(first_sequence=5, records=2, base_offset=105),
    ]
    return ProducersImported(
        topic_id=TOPIC,
        partition=0,
        end_offset=end,
        producers=[
            ImportedProducer(
                producer_id=7, epoch=epoch, time_ms=500, first_offset=first_offset, batches=batches
            )
        ],
        aborted=[
            ImportedAbort(producer_id=9, first_offset=101, last_offset=103, stable_offset=104)
        ],
    )


def write() -> BatchesCommitted:
    extent = Extent(
        topic_id=TOPIC, partition=0, position=0, size=80, records=1, attributes=0,
        max_timestamp=5, producer_id=-1, producer_epoch=-1, base_sequence=-1,
    )  # fmt: skip
    return BatchesCommitted(object_id=thing(99), extents=[extent])


def test_imported_segments_are_contiguous_and_records_follow() -> None:
    world = World()
    assert world.say(staged(1, 100)) == [NONE]
    assert world.say(imported(100, (1, 150))) == [NONE]
    world.say(staged(2, 150), staged(3, 170))
    assert world.say(imported(150, (2, 170), (3, 200)), whole(120, 200)) == [NONE, NONE]

    assert world.rows() == [(100, 150), (150, 170), (170, 200)]
    assert (world.partition.log_start, world.partition.next_offset) == (120, 200)
    assert world.partition.size_bytes == 1500
    world.say(write())
    assert world.partition.next_offset == 201
    assert not list(check_state(world.state))


def test_segments_are_refused_after_a_write() -> None:
    world = World()
    world.say(write())
    world.say(staged(1, 100))
    assert world.say(imported(100, (1, 150))) == [BEYOND]
    assert world.say(whole(100, 150)) == [BEYOND]
    assert world.say(told(150)) == [BEYOND]
    assert world.partition.next_offset == 1


def test_repeated_import_changes_nothing() -> None:
    world = World()
    world.say(staged(1, 0))
    world.say(imported(0, (1, 50)), whole(0, 50, (0, 0), (4, 20)))
    before = write_image(world.state)
    assert world.say(imported(0, (1, 50))) == [BEYOND]
    assert world.say(whole(0, 50, (0, 0), (4, 20))) == [NONE]
    again = read_image(write_image(world.state))
    assert again.topics.by_id[TOPIC].partitions[0].epochs == [(0, 0), (4, 20)]
    assert len(write_image(world.state)) == len(before)


@pytest.mark.parametrize(
    "segments",
    [[(1, 100)], [(1, 90)], [(2, 150)], [(1, 150), (1, 160)], [(8, 150)]],
    ids=["empty", "backwards", "staged elsewhere", "twice", "never staged"],
)
def test_invalid_segments_are_refused(segments: list[tuple[int, int]]) -> None:
    world = World()
    world.say(staged(1, 100), staged(2, 170))
    assert world.say(imported(100, *segments)) == [ErrorCode.INVALID_REQUEST]
    assert not world.rows()


def test_condemned_or_used_object_is_refused() -> None:
    world = World()
    world.say(staged(1, 100), ObjectsCondemned(object_ids=[thing(1)]))
    assert world.say(imported(100, (1, 150))) == [ErrorCode.INVALID_REQUEST]


def test_emptied_partition_keeps_its_end_offset() -> None:
    world = World()
    assert world.say(whole(500, 500, (0, 0))) == [NONE]
    assert (world.partition.log_start, world.partition.next_offset) == (500, 500)
    assert not list(check_state(world.state))


@pytest.mark.parametrize("epochs", [((1, 0), (1, 5)), ((0, 9), (1, 5)), ((-1, 0),)])
def test_epochs_must_ascend(epochs: tuple[tuple[int, int], ...]) -> None:
    assert World().say(whole(0, 50, *epochs)) == [ErrorCode.INVALID_REQUEST]


def test_leader_after_an_import_has_a_later_epoch() -> None:
    for with_broker in (False, True):
        world = World(with_broker=with_broker)
        world.say(staged(1, 0))
        world.say(imported(0, (1, 50)), whole(0, 50, (2, 0), (6, 30)))
        partition = world.partition
        assert [partition.epoch_at(offset) for offset in (0, 29, 30, 49)] == [2, 2, 6, 6]
        partition.lead(9)
        assert partition.leader_epoch > 6
        assert partition.epoch_at(50) == partition.leader_epoch


def test_producers_continue_after_an_import() -> None:
    world = World()
    world.say(staged(1, 100))
    assert world.say(imported(100, (1, 110))) == [NONE]
    assert world.say(told(110)) == [NONE]

    window = world.partition.producers[7]
    assert judge(window, 3, 5, 2).offset == 105  # sent again
    assert judge(window, 3, 7, 1) is NEW
    assert judge(window, 3, 9, 1) is OUT_OF_ORDER
    assert producers.describe(window).time_ms == 500
    assert world.state.next_producer_id == 8
    assert list(world.partition.aborted) == [9, 101, 103, 104]
    world.say(told(110))
    assert list(world.partition.aborted) == [9, 101, 103, 104]


def test_imported_open_transaction_can_be_ended_by_others() -> None:
    world = World()
    world.say(staged(1, 100))
    world.say(imported(100, (1, 110)))
    world.say(told(110, first_offset=105), whole(100, 110))
    assert world.partition.last_stable_offset == 105

    place = TransactionPlace(topic_id=TOPIC, partition=0)
    world.say(MarkersWritten(producer_id=7, producer_epoch=3, is_commit=False, places=[place]))

    assert world.partition.last_stable_offset == world.partition.next_offset == 111
    assert list(world.partition.aborted)[4:] == [7, 105, 110, 111]


def test_a_transactional_id_is_fenced_by_its_next_producer() -> None:
    world = World()
    event = TransactionalIdImported(
        transactional_id="x", producer_id=40, producer_epoch=6, timeout_ms=1000
    )
    assert world.say(event) == [NONE]
    assert world.say(event) == [ErrorCode.DUPLICATE_RESOURCE]
    assert world.say(event.replace(transactional_id="y")) == [ErrorCode.INVALID_REQUEST]

    world.say(TransactionInitialised(transactional_id="x", timeout_ms=500))

    assert tuple(world.state.transactions.by_id["x"].writer) == (40, 7)
    assert world.state.next_producer_id == 41


def test_snapshot_keeps_the_imported_state() -> None:
    world = World()
    world.say(staged(1, 100))
    world.say(imported(100, (1, 110)))
    world.say(told(110, first_offset=105), whole(102, 110, (2, 100), cleaned_to=104))

    again = read_image(write_image(world.state)).topics.by_id[TOPIC].partitions[0]

    for name in Partition.__slots__:
        assert getattr(again, name) == getattr(world.partition, name), name
