"""Filters as bounds: they exclude only records that cannot match."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from rookery.log.read.rangeplan import OffsetRange, ReadPlanner
from rookery.spark.read.batchread import BatchReader, FilteringReader
from rookery.spark.read.filters import FilterBounds
from rookery.spark.read.options import ReadOptions
from tests.direct.logs import BASE, Cluster, create, read, send, values, wanted

ALL = OffsetRange(bytes(16), 0, 100, 200)


def offsets(*filters: Filter) -> tuple[int, int]:
    range_ = FilterBounds.of(filters).within(ALL)
    return range_.begin, range_.end


def test_filters_bound_the_offsets() -> None:
    name = ("offset",)
    assert offsets() == (100, 200)
    assert offsets(GreaterThan(name, 120), LessThan(name, 130)) == (121, 130)
    assert offsets(GreaterThanOrEqual(name, 120), LessThanOrEqual(name, 130)) == (120, 131)
    assert offsets(EqualTo(name, 150), GreaterThan(name, 5)) == (150, 151)
    begin, end = offsets(GreaterThan(name, 500))
    assert begin >= end
    assert offsets(IsNotNull(name), EqualTo(("partition",), 3)) == (100, 200)


def test_topics_and_partitions_must_be_in_all_lists() -> None:
    name = ("partition",)
    assert FilterBounds.of([In(name, (1, 2)), EqualTo(name, 2)]).partitions == frozenset({2})
    assert FilterBounds.of([EqualTo(("topic",), "t")]).topics == frozenset({"t"})
    assert FilterBounds.of([GreaterThan(name, 2)]).partitions is None


def test_whole_partitions_drop_other_bounds() -> None:
    places = (EqualTo(("topic",), "t"), In(("partition",), (1,)))
    bounds = FilterBounds.of([*places, LessThan(("offset",), 9)])
    assert bounds.whole_partitions() == FilterBounds(frozenset({"t"}), frozenset({1}))


def test_latest_record_of_a_key_is_found_before_rows_are_filtered(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        send(broker, "t", values(50))
    given = {"store": cluster.store, "subscribe": "t", "latestPerKey": "true", "pushdown": "true"}
    reader = FilteringReader(ReadOptions.of(given))
    reader.pushFilters([LessThan(("offset",), 45)])
    offsets_read = [
        row
        for share in reader.partitions()
        for batch in reader.read(share)
        for row in map(int, batch["offset"].to_numpy())
    ]
    # Spark applies the filter to these; without them, rows that are not the last would be left.
    assert offsets_read == list(range(40, 50))


def test_batch_read_pins_compacted_topics_only(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        create(broker, "t", cleanup_policy="compact")
        create(broker, "plain")
        send(broker, "t", values(50))
        send(broker, "plain", values(50))

    def pins(**options: str) -> int:
        given = {"store": cluster.store, "subscribe": "t,plain", **options}
        BatchReader(ReadOptions.of(given)).partitions()
        with cluster.log as log:
            topics = log.log.state.topics.by_name
            assert not topics["plain"].pins
            return len(topics["t"].pins)

    assert pins(subscribe="plain") == 0
    assert pins(pinFor="0") == 0
    assert pins() == 1


def test_timestamp_without_a_zone_gives_no_bound() -> None:
    name = ("timestamp",)
    assert FilterBounds.of([GreaterThan(name, datetime(2026, 1, 1))]).time_ms == -1  # noqa: DTZ001
    assert FilterBounds.of([LessThan(name, datetime(2026, 1, 1, tzinfo=UTC))]).time_ms == -1
    assert (
        FilterBounds.of([GreaterThan(name, datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC))]).time_ms
        == 1999
    )


def test_time_bound_saves_bytes_and_loses_nothing(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        send(broker, "t", values(20_000, size=200))
    cluster.rewrite()
    with cluster.log as log:
        planner = ReadPlanner(log.log)
        every = log.run(planner.plan(wanted(log)))
        late = log.run(planner.plan(wanted(log), BASE + 19_800))
    assert sum(range_.size for range_ in late) <= 0.05 * sum(range_.size for range_ in every)
    rows = [row for row in read(cluster.place, late) if row.timestamp >= BASE + 19_800]
    assert len(rows) == 200
