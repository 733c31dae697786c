"""The merge against the definition of its order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.consumer.checkpoint import NO_TIME
from rookery.consumer.order.keys import compute_keys, lateness
from rookery.consumer.order.merge import NO_BOUND, Merge, MergeRound
from rookery.consumer.output.arrow import Numbers
from tests.consumer.naive import Row, in_order, placed

TIMES = st.one_of(st.none(), st.integers(0, 30), st.integers(0, 3))
PARTITIONS = st.lists(st.lists(TIMES, max_size=12), min_size=1, max_size=5)


def numbers(values: list[int | None]) -> Numbers:
    return np.array([NO_TIME if value is None else value for value in values], np.int64)


def rows_of(round_: MergeRound[tuple[int, Numbers]] | None) -> list[tuple[int, int, int]]:
    """Return key, partition and offset of the rows of a round, in order."""
    if round_ is None:
        return []
    released = []
    for piece in round_.pieces:
        partition, offsets = piece.run.block
        rows = range(piece.begin, piece.end)
        taken = rows if piece.run.rows is None else piece.run.rows[piece.begin : piece.end]
        released += [
            (int(key), partition, int(offsets[row]))
            for key, row in zip(piece.keys, taken, strict=True)
        ]
    return released if round_.order is None else [released[at] for at in round_.order.tolist()]


class Driver:
    """Feeds partitions into a merge in pieces, in an order that the test draws."""

    def __init__(self, partitions: list[list[int | None]], lateness_ms: int) -> None:
        self.merge: Merge[tuple[int, Numbers]] = Merge(lateness_ms)
        self.partitions = partitions
        self.at = [0] * len(partitions)
        self.out: list[tuple[int, int, int]] = []
        for _ in partitions:
            self.merge.join()

    def feed(self, partition: int, count: int) -> None:
        begin = self.at[partition]
        times = self.partitions[partition][begin : begin + count]
        self.at[partition] = begin + len(times)
        offsets = np.arange(begin, begin + len(times), dtype=np.int64)
        self.merge.add(partition, (partition, offsets), numbers(times), offsets)
        is_done = self.at[partition] >= len(self.partitions[partition])
        self.merge.set_done(partition, is_done=is_done)

    def release(self) -> None:
        self.out += rows_of(self.merge.release())

    def finish(self) -> None:
        for partition, times in enumerate(self.partitions):
            self.feed(partition, len(times))
        self.release()


def expected(partitions: list[list[int | None]], lateness_ms: int) -> list[tuple[int, int, int]]:
    rows = [[Row(p, o, time) for o, time in enumerate(many)] for p, many in enumerate(partitions)]
    return [(row.key, row.partition, row.offset) for row in in_order(rows, lateness_ms)]


@settings(max_examples=300, deadline=None)
@given(data=st.data(), partitions=PARTITIONS, lateness_ms=st.sampled_from([0, 1, 5, 100]))
def test_order_is_independent_of_timing(
    data: st.DataObject, partitions: list[list[int | None]], lateness_ms: int
) -> None:
    driver = Driver(partitions, lateness_ms)

    for _ in range(data.draw(st.integers(0, 20))):
        driver.feed(data.draw(st.integers(0, len(partitions) - 1)), data.draw(st.integers(0, 4)))
        driver.release()
    driver.finish()

    assert driver.out == expected(partitions, lateness_ms)
    assert driver.merge.pending == 0


@settings(deadline=None)
@given(partitions=PARTITIONS)
def test_unknown_partition_blocks_rows_that_may_follow_it(
    partitions: list[list[int | None]],
) -> None:
    driver = Driver([*partitions, [0]], 0)

    for partition, times in enumerate(partitions):
        driver.feed(partition, len(times))
        driver.merge.set_done(partition, is_done=True)
    driver.release()

    # Only rows without any time before them have a place before all times.
    assert all(key == NO_TIME for key, _, _ in driver.out)


def test_lower_partition_number_comes_first_among_equal_times() -> None:
    driver = Driver([[7, 8], [7, 8], [7, 8]], 0)

    driver.feed(2, 2)
    driver.feed(0, 2)
    driver.feed(1, 1)
    driver.release()

    assert [(key, partition) for key, partition, _ in driver.out] == [(7, 0), (7, 1)]
    driver.finish()
    assert driver.out == expected([[7, 8], [7, 8], [7, 8]], 0)


def test_idle_partition_is_skipped_and_its_older_rows_are_late() -> None:
    merge: Merge[tuple[int, Numbers]] = Merge()
    busy, quiet = merge.join(), merge.join()
    offsets = np.arange(3, dtype=np.int64)
    merge.set_idle(quiet, is_idle=True)

    merge.add(busy, (busy, offsets), numbers([10, 20, 30]), offsets)
    first = rows_of(merge.release())
    merge.set_idle(quiet, is_idle=False)
    merge.add(quiet, (quiet, offsets), numbers([5, 31, 32]), offsets)
    for index in (busy, quiet):
        merge.set_done(index, is_done=True)
    second = rows_of(merge.release())

    assert [key for key, _, _ in first] == [10, 20, 30]
    assert [(key, offset) for key, _, offset in second] == [(30, 0), (31, 1), (32, 2)]


def test_rows_before_the_checkpoint_are_omitted() -> None:
    whole: list[int | None] = [5, 1, 3, 2, 4, 9]
    merge: Merge[Any] = Merge(lateness_ms=3)
    offsets = np.arange(len(whole), dtype=np.int64)
    index = merge.join(passed=[(1, 2), (3, 5)])

    merge.add(index, (index, offsets), numbers(whole), offsets)
    merge.set_done(index, is_done=True)
    left = rows_of(merge.release())

    every = [(row.key, 0, row.offset) for row in in_order([_rows(whole)], 3)]
    assert left == [row for row in every if row[2] not in {1, 3, 4}]


def _rows(times: list[int | None]) -> list[Row]:
    return [Row(0, offset, time) for offset, time in enumerate(times)]


@pytest.mark.parametrize("order", ["none", "partition"])
def test_other_orders_keep_the_offsets_of_each_partition(order: str) -> None:
    merge: Merge[tuple[int, Numbers]] = Merge(order=order)
    offsets = np.arange(3, dtype=np.int64)
    for _ in range(2):
        merge.join()

    merge.add(1, (1, offsets), numbers([1, 2, 3]), offsets)
    early = rows_of(merge.release())
    merge.add(0, (0, offsets), numbers([9, 5, 7]), offsets)
    for index in range(2):
        merge.set_done(index, is_done=True)
    rest = rows_of(merge.release())

    places = [(partition, offset) for _, partition, offset in early + rest]
    if order == "partition":
        assert early == []
        assert places == [(p, o) for p in range(2) for o in range(3)]
    else:
        assert len(early) == 3
        assert sorted(places) == [(p, o) for p in range(2) for o in range(3)]


@settings(deadline=None)
@given(times=st.lists(TIMES, max_size=20), allowance=st.integers(0, 10), cut=st.integers(0, 20))
def test_keys_of_rows_do_not_depend_on_where_blocks_are_cut(
    times: list[int | None], allowance: int, cut: int
) -> None:
    max_time = 20
    wanted = placed(_rows(times), allowance, max_time)

    first = compute_keys(numbers(times[:cut]), NO_TIME, allowance, max_time)
    second = compute_keys(numbers(times[cut:]), first.clock, allowance, max_time)

    keys = np.concatenate([first.keys, second.keys])
    before = np.concatenate([first.before, second.before])
    assert keys.tolist() == [row.key for row in wanted]
    assert before.tolist() == [row.before for row in wanted]
    late = lateness(keys, numbers(times), max_time)
    assert late.tolist() == [row.lateness for row in wanted]


def test_without_partitions_nothing_is_blocked() -> None:
    merge: Merge[None] = Merge()
    assert merge.bound().key == NO_BOUND
    assert merge.release() is None
