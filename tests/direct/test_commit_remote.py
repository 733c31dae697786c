"""Sinks over S3 and etcd, as on many hosts: nothing of them lies in a folder."""

from __future__ import annotations

import asyncio

import pytest

from rookery.cluster.state.sinks import SinkBatch
from rookery.direct.commit import commit, last_commit
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress
from rookery.testing.backends import ServerBackend
from tests.direct.sinking import (
    BATCH,
    faults,
    make_cluster_at,
    make_topic,
    read_topic,
    rows,
    stage,
    values_of,
)


@pytest.fixture(params=["store", "etcd"])
def place(request: pytest.FixtureRequest, backend: ServerBackend) -> ClusterAddress:
    name = f"commit-{request.param}"
    cluster = backend.cluster(name) if request.param == "etcd" else ""
    return ClusterAddress(store=backend.store(name), cluster=cluster)


async def test_writers_on_several_hosts_are_committed_together(place: ClusterAddress) -> None:
    await make_cluster_at(place)
    async with DirectLog.open(place) as driver:
        await make_topic(driver)

        async def task(number: int) -> list[int]:
            async with DirectLog.open(place) as log:
                sent = [rows(500, number * 2000 + start) for start in range(0, 2000, 500)]
                made = await stage(log, *sent, object_bytes=64 * 1024, compression="lz4")
                return [one.object_id for one in made]

        tasks = await asyncio.gather(*map(task, range(3)))
        assert await values_of(driver) == []
        objects = [one for some in tasks for one in some]
        done = await commit(driver, BATCH, objects, source_offsets="there")
        assert done.records == 6000
        assert (await commit(driver, BATCH, objects)).is_repeated
        for part in await read_topic(driver):
            numbers = [int((one.value or b"")[1:]) for one in part]
            assert numbers == sorted(numbers)
    async with DirectLog.open(place) as log:
        assert await values_of(log) == sorted(b"v%d" % number for number in range(6000))
        found = await last_commit(log, "sink")
        assert found is not None
        assert SinkBatch("sink", *found[:2]) == BATCH
    assert not await faults(place)
