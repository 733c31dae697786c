"""Records of many partitions in the order of their times; and the last one of every key."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pytest

from rookery.direct import latest, ordered
from rookery.direct.latest import KeyShare
from rookery.direct.plan import Gap, PlannedRange
from rookery.direct.read import RangeReader, plan_again
from rookery.records.reading import COLUMNS, Reading
from tests.direct.logs import (
    BASE,
    Cluster,
    Seen,
    Sent,
    create,
    planned,
    read_all,
    seen,
    send,
    send_aborted,
)


def disordered(count: int) -> list[Sent]:
    """Make rows of four partitions whose times go up, but not always."""
    chance = random.Random(5)
    return [
        Sent(b"v%d" % i, b"k%d" % chance.randrange(50), i % 4, BASE + i + chance.randrange(-40, 40))
        for i in range(count)
    ]


@pytest.fixture(scope="module", params=["extents", "segments"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Return a cluster with disorder, and aborted records whose times are far too high."""
    cluster = Cluster(tmp_path_factory.mktemp("ordered"))
    rows = disordered(4_000)
    with cluster.broker() as broker:
        create(broker, "t", 4)
        send(broker, "t", rows[:2_000], each=40)
        send_aborted(broker, "t", [Sent(b"bad", b"k1", 1)] * 3, "bad")
        send(broker, "t", rows[2_000:], each=40)
    if request.param == "segments":
        cluster.rewrite()
    return cluster


def no_gaps(gaps: Sequence[Gap]) -> None:
    assert not gaps


def by_clock(rows: Sequence[Seen]) -> list[Seen]:
    """Put rows in order, one by one."""
    keyed = []
    for _, many in groupby(sorted(rows), key=lambda row: row.partition):
        clock = -1
        for row in many:
            clock = max(clock, row.timestamp)
            keyed.append((clock, row.partition, row.offset, row))
    return [row for *_, row in sorted(keyed)]


@pytest.mark.parametrize("count", [1, 7, 30])
def test_spans_one_after_the_other_are_in_order(cluster: Cluster, count: int) -> None:
    with cluster.log as log:
        shares = log.run(ordered.shares(log.log, planned(log), count))
    reader = RangeReader(cluster.place)
    again: list[int] = []

    def read(one: PlannedRange, names: Sequence[str]) -> list[pa.RecordBatch]:
        return list(reader.columns([one], Reading(columns=tuple(names)), no_gaps))

    def plan(one: PlannedRange, begin: int, end: int) -> PlannedRange | None:
        again.append(begin)
        return plan_again(cluster.place, one, begin, no_gaps, end)

    found = [row for one in shares for row in seen(ordered.ordered(one, COLUMNS, read, plan))]
    reader.close()
    assert found == by_clock(read_all(cluster))
    assert count // 2 <= len(shares) <= count + 1
    if count > 1:
        # The aborted records' times have led a span astray, which was then read on.
        assert again


@pytest.mark.parametrize("count", [1, 3])
def test_the_last_record_of_every_key_stays(cluster: Cluster, count: int) -> None:
    everything = read_all(cluster)
    with cluster.log as log:
        ranges = planned(log)
    reader = RangeReader(cluster.place)
    found = [
        row
        for one in ranges
        for index in range(count)
        for row in seen(
            latest.latest(reader.columns([one], Reading(), no_gaps), KeyShare(index, count))
        )
    ]
    reader.close()
    last = {(row.partition, row.key): row for row in everything}
    assert sorted(found) == sorted(last.values())


def test_tombstones_go_and_records_without_a_key_stay(tmp_path: Path) -> None:
    rows = [Sent(b"1", b"a"), Sent(b"2"), Sent(None, b"a"), Sent(b"3"), Sent(b"4", b"b")]
    batch = pa.record_batch(
        {
            "key": pa.array([row.key for row in rows], pa.binary()),
            "value": pa.array([row.value for row in rows], pa.binary()),
        }
    )
    for count in (1, 2):
        found = [
            one for index in range(count) for one in latest.latest([batch], KeyShare(index, count))
        ]
        left = {value for one in found for value in one["value"].to_pylist()}
        assert left == {b"2", b"3", b"4"}
        assert sum(one.num_rows for one in found) == 3
