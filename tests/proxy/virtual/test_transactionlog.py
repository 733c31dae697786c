"""Transactions in the log of a physical partition are counted, and aborted ones are listed."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.model.control import ControlRecordType
from rookery.proxy.virtual import slotindex
from rookery.proxy.virtual.rules import UntaggedPolicy
from rookery.proxy.virtual.slotindex import SlotIndex, Stretch
from rookery.proxy.virtual.tags import tag_batch
from rookery.records import batches
from rookery.records.recordcodec import BatchSettings, Record, build, build_marker

SLOTS, PRODUCERS = 3, 3
REJECT = UntaggedPolicy.REJECT
ABORT, COMMIT = ControlRecordType.ABORT, ControlRecordType.COMMIT


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slotindex, "STRETCH_BYTES", 600)


class Write(NamedTuple):
    """A batch of a transaction."""

    producer: int
    slot: int
    size: int


class End(NamedTuple):
    """A marker."""

    producer: int
    kind: ControlRecordType


histories = st.lists(
    st.builds(Write, st.integers(0, PRODUCERS - 1), st.integers(0, SLOTS - 1), st.integers(1, 4))
    | st.builds(End, st.integers(0, PRODUCERS - 1), st.sampled_from([ABORT, COMMIT])),
    max_size=60,
)


def log_of(history: list[Write | End]) -> list[bytes]:
    offset, log = 0, []
    for each in history:
        if isinstance(each, End):
            # Kafka may bump the epoch with the marker.
            settings = BatchSettings(producer_id=each.producer, producer_epoch=1)
            data = bytearray(build_marker(each.kind, 0, settings, 0))
            count = 1
        else:
            settings = BatchSettings(
                producer_id=each.producer, producer_epoch=0, base_sequence=0, is_transactional=True
            )
            records = [Record(None, b"x")] * each.size
            tagged = tag_batch(build(_placed(records), settings), each.slot, is_transactional=True)
            data, count = bytearray(b"".join(tagged.renumber(7))), each.size
        batches.stamp_into(data, offset, 0)
        log.append(bytes(data))
        offset += count
    return log


def _placed(records: list[Record]) -> list[Record]:
    return [each._replace(offset=number) for number, each in enumerate(records)]


class Model:
    """One slot, as a partition of its own would be."""

    def __init__(self, history: list[Write | End], slot: int) -> None:
        self.end = 0
        self.aborted: set[tuple[int, int, int]] = set()
        firsts: dict[int, int] = {}
        for each in history:
            if isinstance(each, Write):
                if each.slot == slot:
                    firsts.setdefault(each.producer, self.end)
                    self.end += each.size
            elif each.producer in firsts:
                first = firsts.pop(each.producer)
                if each.kind is ABORT:
                    self.aborted.add((first, self.end, each.producer))
                self.end += 1
        self.stable = min(firsts.values(), default=self.end)


def walk(log: list[bytes]) -> tuple[SlotIndex, dict[int, Stretch]]:
    index, stretches = SlotIndex(SLOTS, REJECT), {}
    for data in log:
        index.take(data)
        closed = index.close_stretch()
        if closed is not None:
            stretches[len(index.starts) - 2] = closed
    return index, stretches


@given(histories, st.randoms(use_true_random=False))
def test_each_slot_counts_as_a_partition_of_its_own(
    history: list[Write | End], random: Random
) -> None:
    index, _ = walk(log_of(history))

    for slot in range(SLOTS):
        model = Model(history, slot)
        assert (index.counter(slot), index.stable(slot)) == (model.end, model.stable)
        start = random.randint(0, model.end)
        end = random.randint(start, model.end)
        wanted = {each for each in model.aborted if each[0] < end and each[1] >= start}
        assert {each[:3] for each in index.find_aborted(slot, start, end)} >= wanted
        assert {each[:3] for each in index.find_aborted(slot, start, end)} <= model.aborted


@given(histories)
def test_stretches_read_again_begin_with_the_transactions_that_are_open(
    history: list[Write | End],
) -> None:
    log = log_of(history)
    index, stretches = walk(log)

    for number, start in enumerate(index.starts[:-1]):
        again = Stretch(start)
        again.take(b"".join(log), REJECT, index.starts[number + 1].offset)
        assert again.end() == index.starts[number + 1]
        for slot in range(SLOTS):
            at = start.counters[slot]
            assert again.find(slot, at) == stretches[number].find(slot, at)


@given(histories, histories, st.integers(0, 60))
def test_transactions_beyond_the_end_of_a_log_that_was_cut_do_not_count(
    history: list[Write | End], others: list[Write | End], kept: int
) -> None:
    index, _ = walk(log_of(history))
    log = log_of([*history[:kept], *others])

    end = sum(each.size if isinstance(each, Write) else 1 for each in history[:kept])
    index.truncate(end, 0)
    index.take(b"".join(log))

    fresh = SlotIndex(SLOTS, REJECT)
    fresh.take(b"".join(log))
    assert index.open.end() == fresh.open.end()
    for slot in range(SLOTS):
        count = index.counter(slot)
        assert index.find_aborted(slot, 0, count) == fresh.find_aborted(slot, 0, count)


def test_a_marker_of_a_transaction_that_wrote_nothing_takes_no_offset() -> None:
    index, _ = walk(log_of([Write(0, 1, 2), End(2, ABORT), End(0, COMMIT), End(0, COMMIT)]))

    assert [index.counter(slot) for slot in range(SLOTS)] == [0, 3, 0]
