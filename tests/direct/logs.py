"""Logs that brokers have written, to be read without them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import time
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.broker.settings import BrokerSettings
from rookery.cluster.port import EntriesTrimmed
from rookery.cluster.state.partition import Partition, RowKind
from rookery.direct.blockinglog import BlockingLog
from rookery.direct.blockingreader import BlockingReader
from rookery.direct.offsets import LATEST, DirectSubscription, Position
from rookery.direct.place import ClusterAddress
from rookery.log.read.rangeplan import Gap, OffsetRange, PlannedRange, ReadPlanner
from rookery.log.settings import CompactionSettings, RewriteSettings
from rookery.records.reading import ReadSettings
from rookery.store.backends.file import FileStore
from rookery.store.port import StoredObject
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.wait import wait_until

SMALL = RewriteSettings(
    merge_bytes=200_000,
    merge_age_ms=1,
    row_bytes=20_000,
    segment_bytes=100_000,
    segment_age_ms=1,
    segment_min_bytes=1,
    index_interval_bytes=8_192,
)


BASE = int(time() * 1000) - 3_600_000
"""The time of the first row: young enough for retention."""


class Seen(NamedTuple):
    """A record, as readers see it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class Cluster:
    """A folder whose brokers come and go, and what was sent to them."""

    def __init__(self, folder: Path, *, store: str | None = None, is_local: bool = False) -> None:
        self.folder = folder / "data"
        self.store = "" if is_local else store or f"file://{folder / 'store'}"
        self.place = (
            ClusterAddress(data=str(self.folder)) if is_local else ClusterAddress(store=self.store)
        )

    @contextmanager
    def broker(self, **settings: Any) -> Iterator[ServedBroker]:
        """Run a broker that leaves the log as it is, unless told otherwise."""
        chosen = {"durability": "os", "upkeep_interval_ms": 3_600_000, **settings}
        with ServedBroker(self.folder, BrokerSettings(store=self.store, **chosen)) as broker:
            yield broker

    @contextmanager
    def rewriting(self, **settings: Any) -> Iterator[ServedBroker]:
        """Run a broker that rewrites the log into small segments at once."""
        chosen = {"upkeep_interval_ms": 50, "rewrite": SMALL, **settings}
        with self.broker(**chosen) as broker:
            yield broker

    def rewrite(self, topic: str = "t", **settings: Any) -> None:
        """Have all of a topic's batches moved into segments, and stop."""
        with self.rewriting(**settings) as broker:
            wait_until(lambda: all(map(_is_rewritten, partitions_of(broker, topic))))

    def trim(self, entry: int) -> None:
        """Have a broker trim the cluster log after an entry, and stop it."""
        with self.rewriting(delete_delay_ms=0, snapshot_entries=1) as broker:
            wait_until(lambda: _is_trimmed(broker, entry))

    @property
    def log(self) -> BlockingLog:
        """Open the log again."""
        return BlockingLog(self.place)


def _is_rewritten(partition: Partition) -> bool:
    return bool(partition.kinds) and all(kind & RowKind.SEGMENT for kind in partition.kinds)


def _is_trimmed(broker: ServedBroker, entry: int) -> bool:
    """Whether the cluster log of a broker begins after an entry."""
    try:
        broker.do(broker.broker.backing.cluster_log.read(entry - 1, 1))
    except EntriesTrimmed:
        return True
    return False


def partitions_of(broker: ServedBroker, topic: str) -> list[Partition]:
    """Return a topic's partitions, as a broker knows them."""
    return broker.broker.replica.state.topics.by_name[topic].partitions


def create(broker: ServedBroker, topic: str, partitions: int = 1, **configs: str) -> None:
    """Make a topic; underscores in the names of settings stand for dots."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {name.replace("_", "."): value for name, value in configs.items()}
    new = NewTopic(topic, partitions, config=config)
    admin.create_topics([new])[topic].result(30)


class Sent(NamedTuple):
    """A record to be sent."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp: int = 0


def send(
    broker: ServedBroker,
    topic: str,
    rows: Sequence[Sent],
    each: int = 100,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Send rows in order, in batches of a given size."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "linger.ms": 100,
            "enable.idempotence": True,
            **settings,
        }
    )
    is_transaction = "transactional.id" in settings
    if is_transaction:
        producer.init_transactions(30)
        producer.begin_transaction()
    for at in range(0, len(rows), each):
        for row in rows[at : at + each]:
            producer.produce(
                topic, row.value, row.key, partition=row.partition, timestamp=row.timestamp
            )
        assert producer.flush(30) == 0
    if is_transaction:
        producer.commit_transaction(30)


def send_aborted(broker: ServedBroker, topic: str, rows: Sequence[Sent], name: str) -> None:
    """Send rows in a transaction that is aborted."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for row in rows:
        producer.produce(topic, row.value, row.key, partition=row.partition)
    producer.flush(30)
    producer.abort_transaction(30)


def send_by_turns(broker: ServedBroker, topic: str) -> list[bytes]:
    """Have one producer abort and commit transactions; return what it has committed."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "turns"})
    producer.init_transactions(30)
    committed: list[bytes] = []
    for number, is_good in enumerate([False, True, True, False, False, True]):
        rows = [b"%d %d" % (number, row) + bytes(500) for row in range(40)]
        producer.begin_transaction()
        for row in rows:
            producer.produce(topic, row, partition=0)
            if row[2:4] in {b"10", b"20", b"30"}:
                producer.flush(30)
        (producer.commit_transaction if is_good else producer.abort_transaction)(30)
        committed += rows if is_good else []
    return committed


def values(count: int, size: int = 100, partitions: int = 1) -> list[Sent]:
    """Make rows that all differ."""
    return [
        Sent(b"%d" % i * (size // len(b"%d" % i) + 1), b"k%d" % (i % 10), i % partitions, BASE + i)
        for i in range(count)
    ]


def wanted(
    log: BlockingLog,
    *topics: str,
    start: Position | None = None,
    end: Position | None = None,
    is_committed: bool = True,
) -> list[OffsetRange]:
    """Resolve both ends of topics."""
    subjects = DirectSubscription(topics=topics or ("t",)).find(log.log.state)
    start, end = start or Position(), end or Position(LATEST)
    begins = log.run(start.resolve(log.log, subjects, is_committed=is_committed))
    ends = log.run(end.resolve(log.log, subjects, is_committed=is_committed))
    return [OffsetRange(*key, begins[key], ends[key]) for key in begins]


def planned(log: BlockingLog, *topics: str, **ends: Any) -> list[PlannedRange]:
    """Plan topics; all that is wanted must be there."""
    planner = ReadPlanner(log.log, is_committed=ends.get("is_committed", True))
    ranges = log.run(planner.plan(wanted(log, *topics, **ends)))
    assert not planner.gaps
    return ranges


def read(
    place: ClusterAddress, ranges: Sequence[PlannedRange], gaps: list[Gap] | None = None
) -> list[Seen]:
    """Read planned ranges."""
    reader = BlockingReader(place)
    try:
        noted = [] if gaps is None else gaps
        return seen(reader.columns(ranges, ReadSettings(), noted.extend))
    finally:
        reader.close()


def read_all(cluster: Cluster, *topics: str, **ends: Any) -> list[Seen]:
    """Plan and read topics."""
    with cluster.log as log:
        ranges = planned(log, *topics, **ends)
    return read(cluster.place, ranges)


def seen(batches: Iterator[pa.RecordBatch]) -> list[Seen]:
    """Return records row by row."""
    rows: list[Seen] = []
    for batch in batches:
        times = batch["timestamp"].cast(pa.int64())
        columns = [batch["topic"], batch["partition"], batch["offset"], times]
        columns += [batch["key"], batch["value"]]
        rows += map(Seen._make, zip(*(column.to_pylist() for column in columns), strict=True))
    return rows


COMPACT = {"compaction": CompactionSettings(min_bytes=1)}


class FolderReads:
    """Reads of the objects of one folder, and listings; metrics count those of all folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sizes: list[tuple[str, int]] = []
        self.listed: list[str] = []

    def of_segments(self) -> list[int]:
        """Return the size of each read of a segment."""
        return [size for key, size in self.sizes if key.endswith(".kfs")]


@contextmanager
def recorded_reads(cluster: Cluster) -> Iterator[FolderReads]:
    """Record what is read from the store of a cluster."""
    reads = FolderReads(cluster.folder.parent / "store")
    read_file, list_files = FileStore._read, FileStore._list

    def read(store: FileStore, key: str, start: int, size: int | None) -> bytes:
        data = read_file(store, key, start, size)
        if store._folder == reads.folder:
            reads.sizes.append((key, len(data)))
        return data

    def list_keys(store: FileStore, prefix: str) -> list[StoredObject]:
        if store._folder == reads.folder:
            reads.listed.append(prefix)
        return list_files(store, prefix)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileStore, "_read", read)
        patch.setattr(FileStore, "_list", list_keys)
        yield reads
