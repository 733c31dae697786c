"""Tasks read all planned records, each once, and about the same amount."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from rookery.log.read.rangeplan import PlannedRange, ReadPlanner, TaskSize
from tests.direct.logs import Cluster, create, planned, read, read_all, send, values


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Return a cluster with one topic of segments."""
    cluster = Cluster(tmp_path_factory.mktemp("plan"))
    with cluster.broker() as broker:
        create(broker, "t", 3)
        send(broker, "t", values(6_000, partitions=3))
    cluster.rewrite()
    return cluster


def tasks(cluster: Cluster, cutting: TaskSize) -> list[list[PlannedRange]]:
    with cluster.log as log:
        ranges = planned(log)
        return log.run(ReadPlanner(log.log).tasks(ranges, cutting))


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_tasks_contain_all_records_once_and_in_order(cluster: Cluster, count: int) -> None:
    chosen = tasks(cluster, TaskSize(cores=1, min_tasks=count))
    assert [row for task in chosen for row in read(cluster.place, task)] == read_all(cluster)
    ranges = [part for task in chosen for part in task]
    assert all(
        part.end == other.begin
        for part, other in pairwise(ranges)
        if part.partition == other.partition
    )
    assert len(chosen) >= min(count, 20)


def test_small_partitions_share_a_task(cluster: Cluster) -> None:
    assert len(tasks(cluster, TaskSize(cores=8))) == 1


def test_records_per_task_are_bounded(cluster: Cluster) -> None:
    chosen = tasks(cluster, TaskSize(max_records=700))
    counts = [sum(part.end - part.begin for part in task) for task in chosen]
    assert max(counts) <= 700
    assert sum(counts) == 6_000
    assert sorted(row for task in chosen for row in read(cluster.place, task)) == sorted(
        read_all(cluster)
    )


def test_planned_range_is_independent_of_other_partitions(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.log as log:
        ranges = planned(log)
    assert [part.partition for part in ranges] == [0, 1, 2]
    assert read(cluster.place, ranges[1:2]) == [
        row for row in read_all(cluster) if row.partition == 1
    ]
