"""Records of many partitions in time order, and the last record of every key."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rookery.direct import latest, timeorder
from rookery.direct.blockingreader import BlockingReader, plan_again
from rookery.direct.intime import TimedPiece, in_time
from rookery.direct.latest import KeyShare
from rookery.direct.timeorder import Reached, SpanShare
from rookery.errors import Corrupt
from rookery.log.read.rangeplan import Gap, PlannedRange, ReadPlanner
from rookery.records.batches import parse, restamp_into
from rookery.records.reading import COLUMNS, ReadSettings
from rookery.records.recordcodec import Record, build
from rookery.testing.servedbroker import ServedBroker
from tests.broker.raw import raw
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
    """Make rows of four partitions whose times go up, but not always; one is far ahead."""
    chance = random.Random(5)
    rows = [
        Sent(b"v%d" % i, b"k%d" % chance.randrange(50), i % 4, BASE + i + chance.randrange(-40, 40))
        for i in range(count)
    ]
    ahead = count // 4 + 2
    rows[ahead] = rows[ahead]._replace(timestamp=BASE + 4_000_000)
    return rows


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


class Spans:
    """Reads spans."""

    def __init__(self, cluster: Cluster) -> None:
        self._place = cluster.place
        self._reader = BlockingReader(cluster.place)
        self.again: list[int] = []
        """Where it was read on."""
        self.reached: Reached = {}

    def __enter__(self) -> Spans:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def rows(self, share: SpanShare) -> list[Seen]:
        found = timeorder.read_in_order(share, COLUMNS, self.read, self.plan, self.reached)
        return seen(found)

    def read(self, part: PlannedRange, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._reader.columns(
            [part], ReadSettings(columns=tuple(names), max_rows=64), no_gaps
        )

    def plan(self, part: PlannedRange, begin: int, end: int) -> PlannedRange | None:
        self.again.append(begin)
        return plan_again(self._place, part, begin, no_gaps, end)


@pytest.mark.parametrize("max_offsets", [1 << 40, 33])
@pytest.mark.parametrize("count", [1, 7, 30])
def test_consecutive_spans_are_in_order(cluster: Cluster, count: int, max_offsets: int) -> None:
    with cluster.log as log:
        shares = log.run(
            timeorder.span_shares(log.log, planned(log), count, max_offsets=max_offsets)
        )
    with Spans(cluster) as spans:
        rows = [spans.rows(share) for share in shares]
    assert [row for many in rows for row in many] == by_clock(read_all(cluster))
    if max_offsets > 4_000:
        assert count // 2 <= len(shares) <= count + 1
        # What comes after the record far ahead has one clock, and is cut all the same.
        assert max(map(len, rows)) <= max(2 * 4_000 // count, 600)
    if count > 1:
        # The aborted records' times have led a span astray, which was then read on.
        assert spans.again


@pytest.mark.parametrize("most", [1, 5])
def test_reading_resumes_after_a_span(cluster: Cluster, most: int) -> None:
    rows: list[Seen] = []
    clock = -1
    with cluster.log as log, Spans(cluster) as spans:
        while True:
            whole = planned(log)
            wanted = [
                part.offsets._replace(
                    begin=spans.reached.get((part.topic, part.partition), part.begin)
                )
                for part in whole
            ]
            rest = log.run(ReadPlanner(log.log).plan(wanted))
            shares = log.run(timeorder.span_shares(log.log, rest, 40, clock=clock))[:most]
            if not shares:
                break
            for share in shares:
                rows += spans.rows(share)
            clock = shares[-1].end.clock
    assert rows == by_clock(read_all(cluster))


def test_ordering_partitions_takes_little_memory() -> None:
    chance = random.Random(7)
    partitions = [
        sorted(chance.choices(range(chance.choice([2, 40, 100_000])), k=chance.randrange(600)))
        for _ in range(12)
    ]
    loaded, yielded, ahead = 0, 0, []

    def pieces(number: int, clocks: list[int]) -> Iterator[TimedPiece]:
        nonlocal loaded
        for at in range(0, len(clocks), 20):
            some = clocks[at : at + 20]
            loaded += len(some)
            ids = [number * 1000 + at + place for place in range(len(some))]
            yield TimedPiece(pa.record_batch({"id": pa.array(ids, pa.int64())}), np.array(some))

    in_order: list[int | None] = []
    for batch in in_time([pieces(*pair) for pair in enumerate(partitions)], ["id"], 20 * 20 * 8):
        ahead.append(loaded - yielded)
        yielded += batch.num_rows
        in_order += batch["id"].to_pylist()

    keyed = [
        (clock, number, at) for number, many in enumerate(partitions)
        for at, clock in enumerate(many)
    ]  # fmt: skip
    assert in_order == [number * 1000 + at for _, number, at in sorted(keyed)]
    assert max(ahead) <= (20 + 12) * 20 < len(in_order) / 2


@pytest.mark.parametrize("count", [1, 3])
def test_last_record_of_every_key_is_kept(cluster: Cluster, count: int) -> None:
    everything = read_all(cluster)
    with cluster.log as log:
        ranges = planned(log)
    reader = BlockingReader(cluster.place)
    values = [
        row
        for part in ranges
        for index in range(count)
        for row in seen(
            latest.latest(reader.columns([part], ReadSettings(), no_gaps), KeyShare(index, count))
        )
    ]
    reader.close()
    last = {(row.partition, row.key): row for row in everything}
    assert sorted(values) == sorted(last.values())


def test_tombstones_are_removed_and_records_without_a_key_are_kept(tmp_path: Path) -> None:
    rows = [Sent(b"1", b"a"), Sent(b"2"), Sent(None, b"a"), Sent(b"3"), Sent(b"4", b"b")]
    batch = pa.record_batch(
        {
            "key": pa.array([row.key for row in rows], pa.binary()),
            "value": pa.array([row.value for row in rows], pa.binary()),
        }
    )
    for count in (1, 2):
        batches = [
            part
            for index in range(count)
            for part in latest.latest([batch], KeyShare(index, count))
        ]
        left = {value for part in batches for value in part["value"].to_pylist()}
        assert left == {b"2", b"3", b"4"}
        assert sum(part.num_rows for part in batches) == 3


async def produce(broker: ServedBroker, *batches: bytes) -> None:
    async with raw(broker) as client:
        for batch in batches:
            await client.produce("t", batch)


def batch_of(*times: int, says: int | None = None) -> bytes:
    """Make a batch; its header may say another highest time."""
    made = bytearray(build([Record(b"k", b"v", (), time) for time in times]))
    header = parse(made)
    restamp_into(made, header if says is None else header._replace(max_timestamp=says))
    return bytes(made)


def test_records_without_a_timestamp_have_that_of_the_previous_record(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        create(broker, "t", 1)
        asyncio.run(produce(broker, batch_of(-1, -1), batch_of(BASE), batch_of(-1), batch_of(BASE)))
    with cluster.log as log:
        shares = log.run(timeorder.span_shares(log.log, planned(log), 4))
    with Spans(cluster) as spans:
        offsets = [
            offset
            for share in shares
            for rows in timeorder.read_in_order(share, ["offset"], spans.read, spans.plan)
            for offset in rows["offset"].to_pylist()
        ]
    assert offsets == [0, 1, 2, 3, 4]


def test_timestamp_above_the_maximum_of_its_batch_is_reported(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        create(broker, "t", 1)
        hidden = batch_of(BASE, BASE + 100, BASE + 101, says=BASE + 10)
        asyncio.run(produce(broker, hidden, batch_of(BASE + 50), batch_of(BASE + 200)))
    with cluster.log as log:
        shares = log.run(timeorder.span_shares(log.log, planned(log), 3))
    with Spans(cluster) as spans, pytest.raises(Corrupt, match=r"t-0: the record at offset 1 is"):
        list(map(spans.rows, shares))
