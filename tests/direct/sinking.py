"""A cluster without brokers that sinks write to, and a way to read it that shares no plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from rookery.clock import SystemClock
from rookery.cluster.events.brokerevents import (
    BrokerLeft,
    ClusterCreated,
    ProcessRegistered,
    SettingChange,
)
from rookery.cluster.events.topicevents import TopicCreated
from rookery.cluster.replica import Replica
from rookery.cluster.state.sinks import SinkBatch
from rookery.direct.commit import Commit, commit
from rookery.direct.layout import PackSettings
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress
from rookery.direct.rowstager import RowStager, UploadedObject
from rookery.formats.keys import CLUSTER
from rookery.log.check.check import check
from rookery.log.check.fault import LogFault
from rookery.log.check.sources import Sources
from rookery.log.origin import Handles
from rookery.records.columns import decode
from rookery.records.reading import PartitionBatches, ReadSettings

BATCH = SinkBatch("sink", "query", 0)


class Read(NamedTuple):
    """One record, as it was read back."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


async def make_cluster(folder: Path) -> ClusterAddress:
    """Make a cluster whose store and log are in a folder."""
    (folder / "store").mkdir(parents=True)
    return await make_cluster_at(ClusterAddress(store=f"file://{folder / 'store'}"))


async def make_cluster_at(place: ClusterAddress) -> ClusterAddress:
    """Make a cluster where there is none yet."""
    handles = Handles(place.origin())
    replica = Replica(handles.cluster_log, SystemClock())
    await replica.open(follow=False)
    await replica.create_cluster(ClusterCreated(cluster_id="c", feature_level=1))
    await replica.register(ProcessRegistered(process_id=bytes(16), purpose="tests"))
    await replica.propose([BrokerLeft()])
    await replica.close()
    await handles.store.create(CLUSTER, [b"c"])
    await handles.close()
    return place


async def make_topic(log: DirectLog, name: str = "t", partitions: int = 4, **configs: str) -> None:
    """Make a topic; in the settings' names, `_` stands for a dot."""
    changes = [SettingChange(name=key.replace("_", "."), value=configs[key]) for key in configs]
    event = TopicCreated(
        topic_id=name.encode().ljust(16, b"\1"), name=name, partitions=partitions,
        replication_factor=1, configs=changes,
    )  # fmt: skip
    await log.propose([event])


def rows(count: int, start: int = 0, **columns: Any) -> pa.RecordBatch:
    """Make rows with keys and values that tell them apart."""
    numbers = range(start, start + count)
    values: dict[str, Any] = {
        "key": [b"k%d" % (number % 100) for number in numbers],
        "value": [b"v%d" % number for number in numbers],
    } | columns
    return pa.record_batch({name: values[name] for name in values if values[name] is not None})


async def stage(
    log: DirectLog, *batches: pa.RecordBatch, batch: SinkBatch = BATCH, **packing: Any
) -> list[UploadedObject]:
    """Stage rows as one writer."""
    staging = RowStager(log, batch, PackSettings(**{"topic": "t"} | packing))
    await staging.start()
    for batch_rows in batches:
        await staging.add(batch_rows)
    return await staging.finish()


async def write(
    log: DirectLog, *batches: pa.RecordBatch, batch: SinkBatch = BATCH, **packing: Any
) -> Commit:
    """Stage rows and commit them."""
    objects = await stage(log, *batches, batch=batch, **packing)
    return await commit(log, batch, [staged.object_id for staged in objects])


async def read_partition(log: DirectLog, partition: int, topic: str = "t") -> list[Read]:
    """Read one partition, row by row."""
    state = await log.barrier()
    stored = state.topics.by_name[topic].partitions[partition]
    reading = ReadSettings(columns=("key", "value", "timestamp"))
    records: list[Read] = []
    for index in range(len(stored.base_offsets)):
        row = stored.row(index)
        data = await log.read(row.object_id, row.position, row.size)
        offset = row.base_offset
        for batch in decode([PartitionBatches(topic, partition, bytes(data))], reading):
            keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
            times = batch.column("timestamp").cast(pa.int64()).to_pylist()
            for key, value, time in zip(keys, values, times, strict=True):
                records.append(Read(offset, key, value, time or 0))
                offset += 1
        assert offset == row.end_offset
    assert [record.offset for record in records] == list(range(len(records)))
    return records


async def read_topic(log: DirectLog, topic: str = "t") -> list[list[Read]]:
    """Read all partitions of a topic."""
    state = await log.barrier()
    count = len(state.topics.by_name[topic].partitions)
    return [await read_partition(log, index, topic) for index in range(count)]


async def values_of(log: DirectLog, topic: str = "t") -> list[bytes]:
    """Return the values of a topic, sorted: each as often as it occurs."""
    return sorted(record.value or b"" for part in await read_topic(log, topic) for record in part)


async def faults(place: ClusterAddress) -> list[LogFault]:
    """Check everything, and return what is wrong."""
    handles = Handles(place.origin())
    try:
        sources = Sources(handles.cluster_log, handles.store, handles.files, handles.namespace)
        report = await check(sources)
        return report.faults
    finally:
        await handles.close()
