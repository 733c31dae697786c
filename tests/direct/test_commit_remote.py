"""Sinks over S3 and etcd, without any shared folder."""

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
                return [staged.object_id for staged in made]

        tasks = await asyncio.gather(*map(task, range(3)))
        assert await values_of(driver) == []
        objects = [object_id for some in tasks for object_id in some]
        done = await commit(driver, BATCH, objects, source_offsets="there")
        assert done.records == 6000
        assert (await commit(driver, BATCH, objects)).is_repeated
        for part in await read_topic(driver):
            numbers = [int((record.value or b"")[1:]) for record in part]
            assert numbers == sorted(numbers)
    async with DirectLog.open(place) as log:
        assert await values_of(log) == sorted(b"v%d" % number for number in range(6000))
        last = await last_commit(log, "sink")
        assert last is not None
        assert SinkBatch("sink", *last[:2]) == BATCH
    assert not await faults(place)
