"""Ends of transactions wait for the next object, within bounds."""

from __future__ import annotations

from itertools import count

import pytest

from rookery.cluster.events.groupevents import OffsetCommitted
from rookery.cluster.state.groups import pack
from rookery.cluster.state.outcome import EndedTransaction, WrittenMarker
from rookery.log.write.ends import KEPT_BYTES, TransactionEnds

TOPIC, OTHER = bytes(16), bytes(range(16))
METADATA = "m" * 4096


def ended(producer_id: int, offsets: int = 0) -> EndedTransaction:
    event = OffsetCommitted(
        topic_id=OTHER, partition=0, offset=7, leader_epoch=2, metadata=METADATA, retention_ms=9
    )
    packed = {(OTHER, partition): pack(event, 5) for partition in range(offsets)}
    marker = WrittenMarker(TOPIC, 1, 10, 12, 3, 5000, is_append_time=True)
    return EndedTransaction(producer_id, 4, True, [marker], {"g": packed} if packed else {})


def test_transaction_end_is_recorded_with_markers_and_offsets() -> None:
    ends = TransactionEnds()
    ends.add(77, ended(5, offsets=1))
    [untold] = ends.take()
    numbers = {TOPIC: 0, OTHER: 1}
    told = untold.message(numbers.__getitem__)
    assert (told.entry, told.producer_id, told.producer_epoch, told.is_commit) == (77, 5, 4, True)
    [marker] = told.markers
    assert (marker.topic, marker.partition, marker.first_offset, marker.offset) == (0, 1, 10, 12)
    assert (marker.last_sequence, marker.time_ms, marker.is_append_time) == (3, 5000, True)
    [offset] = told.offsets
    assert (offset.group_id, offset.topic, offset.partition, offset.offset) == ("g", 1, 0, 7)
    assert (offset.leader_epoch, offset.commit_ms, offset.retention_ms) == (2, 5, 9)
    assert offset.metadata == METADATA


def test_end_without_markers_and_offsets_is_not_recorded() -> None:
    ends = TransactionEnds()
    ends.add(1, EndedTransaction(5, 0, True, [], {}))
    assert not ends


def test_ends_per_object_are_bounded_and_returned_ones_come_first() -> None:
    ends = TransactionEnds()
    for number in range(10):
        ends.add(number, ended(number, offsets=200))
    first = ends.take()
    assert 1 <= len(first) < 10
    ends.give_back(first)
    assert len(ends) == 10
    told = []
    while taken := ends.take():
        told += [end.entry for end in taken]
    assert told == list(range(10))


def test_end_above_the_bound_is_recorded_alone() -> None:
    ends = TransactionEnds()
    ends.add(1, ended(1, offsets=2000))
    ends.add(2, ended(2))
    assert [end.entry for end in ends.take()] == [1]
    assert [end.entry for end in ends.take()] == [2]


def test_memory_is_bounded_and_dropped_ends_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    ends = TransactionEnds()
    size = 0
    for number in count():
        end = ended(number, offsets=500)
        ends.add(number, end)
        size += 500 * len(METADATA)
        if size > 2 * KEPT_BYTES:
            break
    assert 0 < len(ends) * 500 * len(METADATA) <= KEPT_BYTES
    assert ends.take()[-1].entry <= number
    assert "producer 0 (entry 0) is in no object" in caplog.messages[0]
