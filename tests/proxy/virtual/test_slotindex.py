"""Virtual offsets are counted from the log alone, in any order of reading it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import Corrupt
from rookery.proxy.virtual import slotindex
from rookery.proxy.virtual.rules import UntaggedPolicy
from rookery.proxy.virtual.slotindex import SlotBatch, SlotIndex, Stretch
from rookery.proxy.virtual.tags import tag_batch
from rookery.records import batches, recordcodec
from rookery.records.recordcodec import Record, build

SLOTS = 3
REJECT = UntaggedPolicy.REJECT


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slotindex, "STRETCH_BYTES", 1000)


def log_of(sizes: list[tuple[int, int]], epochs: int = 1) -> list[bytes]:
    """Return the batches of a log, made from the slot and the record count of each."""
    offset, log = 0, []
    for number, (slot, count) in enumerate(sizes):
        records = [Record(None, b"%d %d" % (slot, offset + each)) for each in range(count)]
        data = bytearray(b"".join(tag_batch(build(records), slot).records))
        batches.stamp_into(data, offset, number * epochs // len(sizes))
        log.append(bytes(data))
        offset += count
    return log


def walk(log: list[bytes], cuts: Random) -> tuple[SlotIndex, dict[int, Stretch]]:
    """Read a log in random pieces; return the index and all stretches."""
    index, stretches, at = SlotIndex(SLOTS, REJECT), {}, 0
    while at < len(log):
        end = min(len(log), at + cuts.randint(1, 5))
        # A response can begin before the requested offset and end within a batch.
        piece = b"".join(log[max(0, at - cuts.randint(0, 2)) : end])
        index.take(piece + (log[end][:40] if end < len(log) else b""))
        closed = index.close_stretch()
        if closed is not None:
            stretches[len(index.starts) - 2] = closed
        at = end
    stretches[len(index.starts) - 1] = index.open
    return index, stretches


def values(slot_batches: list[SlotBatch]) -> list[bytes]:
    return [
        record.value or b""
        for batch in slot_batches
        for record in recordcodec.read(batch.data, batches.parse(batch.data))
    ]


logs = st.lists(st.tuples(st.integers(0, SLOTS - 1), st.integers(1, 9)), min_size=1, max_size=60)


@given(logs, st.randoms(use_true_random=False))
def test_every_slot_has_its_own_records_in_order_and_without_gaps(
    sizes: list[tuple[int, int]], random: Random
) -> None:
    index, stretches = walk(log_of(sizes), random)

    expected: dict[int, list[bytes]] = {slot: [] for slot in range(SLOTS)}
    offset = 0
    for slot, count in sizes:
        expected[slot] += [b"%d %d" % (slot, offset + each) for each in range(count)]
        offset += count
    for slot in range(SLOTS):
        assert index.counter(slot) == len(expected[slot])
        read, at = [], 0
        while at < index.counter(slot):
            slot_batches = list(stretches[index.find(slot, at)].find(slot, at))
            assert slot_batches[0].first <= at < slot_batches[0].end
            read += values(slot_batches)
            at = slot_batches[-1].end
        assert read == expected[slot]


@given(logs, st.randoms(use_true_random=False))
def test_stretches_read_again_are_the_same(sizes: list[tuple[int, int]], random: Random) -> None:
    log = log_of(sizes)
    index, stretches = walk(log, random)

    for number, start in enumerate(index.starts[:-1]):
        again = Stretch(start)
        again.take(b"".join(log), REJECT, index.starts[number + 1].offset)
        assert again.end() == index.starts[number + 1]
        for slot in range(SLOTS):
            at = start.counters[slot]
            assert again.find(slot, at) == stretches[number].find(slot, at)


@given(logs, st.randoms(use_true_random=False))
def test_batches_are_found_by_their_physical_offset(
    sizes: list[tuple[int, int]], random: Random
) -> None:
    index, stretches = walk(log_of(sizes), random)

    offset, counters = 0, [0] * SLOTS
    for slot, count in sizes:
        place = stretches[index.find_physical(offset)].place(offset)
        assert place == (slot, counters[slot], None)
        counters[slot] += count
        offset += count


@given(logs, logs, st.integers(0, 400), st.randoms(use_true_random=False))
def test_a_log_that_was_cut_is_counted_as_if_the_rest_had_never_been(
    sizes: list[tuple[int, int]], others: list[tuple[int, int]], end: int, random: Random
) -> None:
    index, _ = walk(log_of(sizes), random)
    kept, offset = [], 0
    for slot, count in sizes:
        offset += count
        if offset <= end:
            kept.append((slot, count))
    log = log_of([*kept, *others])

    left = index.truncate(sum(count for _, count in kept), 1)
    index.take(b"".join(log))

    assert left == len(index.starts)
    fresh = SlotIndex(SLOTS, REJECT)
    fresh.take(b"".join(log))
    assert index.open.end() == fresh.open.end()


def test_a_log_that_was_cut_within_an_epoch_is_walked_from_below_it() -> None:
    index = SlotIndex(SLOTS, REJECT)
    for offset, epoch in enumerate((3, 5)):
        data = bytearray(b"".join(tag_batch(build([Record(None, b"." * 2000)]), 0).records))
        batches.stamp_into(data, offset, epoch)
        index.take(bytes(data))
        assert index.close_stretch() is not None

    # The new leader has a batch of epoch 3 at offset 1, where the old one had one of epoch 5.
    assert index.truncate(2, 3) == 2
    assert (index.open.offset, index.open.epoch) == (1, 3)


def test_batches_before_a_bad_one_count() -> None:
    log = log_of([(0, 2), (1, 3)])
    untagged = bytearray(build([Record(None, b"?")]))
    batches.stamp_into(untagged, 5, 0)
    index = SlotIndex(SLOTS, REJECT)

    with pytest.raises(Corrupt, match="offset 5"):
        index.take(b"".join(log) + untagged)

    assert index.open.end() == (5, 0, (2, 3, 0), {})


def test_overlapping_batches_are_refused() -> None:
    index = SlotIndex(SLOTS, REJECT)
    index.take(log_of([(0, 2)])[0])

    with pytest.raises(Corrupt, match="overlaps"):
        index.take(log_of([(0, 3)])[0])
