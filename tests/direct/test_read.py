"""Topics read straight from the objects, with every broker stopped."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from rookery.direct.offsets import LATEST, DirectSubscription, Position
from rookery.errors import Corrupt
from rookery.log.read.files import MissingObject
from rookery.log.read.rangeplan import Gap, PlannedRange, ReadPlanner, TaskSize
from rookery.log.settings import RewriteSettings
from rookery.records import columns
from rookery.records.twins import columnstwin
from rookery.testing.wait import wait_until
from tests.direct.logs import (
    BASE,
    COMPACT,
    SMALL,
    Cluster,
    Seen,
    Sent,
    create,
    partitions_of,
    planned,
    read,
    read_all,
    recorded_reads,
    send,
    send_aborted,
    send_by_turns,
    values,
    wanted,
)


def expected(rows: list[Sent], topic: str = "t") -> list[Seen]:
    """Return what a reader must see of rows of one partition."""
    return [Seen(topic, 0, i, row.timestamp, row.key, row.value) for i, row in enumerate(rows)]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Return a cluster over a store in a folder."""
    return Cluster(tmp_path)


def test_flushed_objects_and_segments_give_the_same_records(cluster: Cluster) -> None:
    rows = values(3_000)
    with cluster.broker() as broker:
        send(broker, "t", rows)
    assert read_all(cluster) == expected(rows)
    cluster.rewrite()
    assert read_all(cluster) == expected(rows)


def test_merged_objects_give_the_same_records(cluster: Cluster) -> None:
    rows = values(2_000, partitions=4)
    with cluster.broker() as broker:
        create(broker, "t", 4)
        send(broker, "t", rows)
        before = read_all(cluster)
    whole = {"upkeep_interval_ms": 50, "rewrite": _without_segments()}
    with cluster.broker(**whole) as broker:
        wait_until(lambda: all(any(partition.kinds) for partition in partitions_of(broker, "t")))
        assert all(partition.kinds[0] == 2 for partition in partitions_of(broker, "t"))
    assert len(before) == len(rows)
    assert read_all(cluster) == before


def _without_segments() -> RewriteSettings:
    return replace(SMALL, segment_age_ms=3_600_000, segment_bytes=1 << 29)


def test_folder_is_read_with_and_without_a_live_broker(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, is_local=True)
    rows = values(1_000)
    with cluster.broker() as broker:
        send(broker, "t", rows)
        assert read_all(cluster) == expected(rows)
    assert read_all(cluster) == expected(rows)
    cluster.rewrite()
    assert read_all(cluster) == expected(rows)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(cluster: Cluster, codec: str) -> None:
    rows = values(500)
    with cluster.broker() as broker:
        send(broker, "t", rows, settings={"compression.type": codec})
    assert read_all(cluster) == expected(rows)


def test_aborted_records_are_omitted_unless_requested(cluster: Cluster) -> None:
    with cluster.broker() as broker:
        send(broker, "t", values(3), settings={"transactional.id": "good"})
        send_aborted(broker, "t", [Sent(b"bad")] * 2, "bad")
        send(broker, "t", values(2))
    rows = read_all(cluster)
    assert [row.offset for row in rows] == [0, 1, 2, 7, 8]
    both = read_all(cluster, is_committed=False)
    assert [row.offset for row in both] == [0, 1, 2, 4, 5, 7, 8]
    cluster.rewrite()
    assert read_all(cluster) == rows


def test_records_committed_after_an_abort_are_read(cluster: Cluster) -> None:
    with cluster.broker() as broker:
        committed = send_by_turns(broker, "t")
    rows = read_all(cluster)
    assert [row.value for row in rows] == committed

    # Each piece tells by itself: that of a task, and of a segment.
    cluster.rewrite()
    with cluster.log as log:
        planner = ReadPlanner(log.log)
        shares = log.run(planner.tasks(planned(log), TaskSize(max_records=7)))
    assert len(shares) > 20
    assert [row for share in shares for row in read(cluster.place, share)] == rows


def test_read_ends_before_an_open_transaction(cluster: Cluster) -> None:
    with cluster.broker() as broker:
        send(broker, "t", values(3))
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "open"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("t", b"not yet", partition=0)
        producer.flush(30)
        send(broker, "t", values(2))
        assert [row.offset for row in read_all(cluster)] == [0, 1, 2]
        producer.commit_transaction(30)
        assert len(read_all(cluster)) == 6


def test_append_times_are_read(cluster: Cluster) -> None:
    with cluster.broker() as broker:
        create(broker, "t", message_timestamp_type="LogAppendTime")
        send(broker, "t", values(10))
    before = read_all(cluster)
    assert all(row.timestamp > 1_000_000_000_000 for row in before)
    cluster.rewrite()
    assert read_all(cluster) == before


def test_compacted_offsets_are_not_reported_as_gaps(cluster: Cluster) -> None:
    rows = values(1_000)
    with cluster.broker() as broker:
        create(broker, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        send(broker, "t", rows)
    with cluster.rewriting(**COMPACT) as broker:
        wait_until(lambda: partitions_of(broker, "t")[0].cleaned_to > 900)
    records = read_all(cluster)
    assert len(records) < 200
    assert [row for row in expected(rows) if row in records] == records
    assert {row.key: row for row in records} == {row.key: row for row in expected(rows)}


def test_records_deleted_by_retention_are_reported_as_a_gap(cluster: Cluster) -> None:
    with cluster.broker() as broker:
        send(broker, "t", values(500))
        with cluster.log as log:
            before = wanted(log)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        [done] = admin.delete_records([TopicPartition("t", 0, 300)]).values()
        done.result(30)
    with cluster.log as log:
        planner = ReadPlanner(log.log)
        ranges = log.run(planner.plan(before))
    assert planner.gaps == [Gap("t", 0, 0, 300, "the log begins at 300")]
    assert [row.offset for row in read(cluster.place, ranges)] == list(range(300, 500))


def test_deleted_objects_are_planned_again(cluster: Cluster) -> None:
    rows = values(2_000)
    with cluster.broker(inline_bytes=0) as broker:
        send(broker, "t", rows)
    with cluster.log as log:
        old = planned(log)
    objects = {row.object_id for part in old for row in part.rows if row.object_id > 0}
    assert objects
    with cluster.rewriting(delete_delay_ms=0, snapshot_entries=1) as broker:
        known = broker.broker.replica.state.objects
        wait_until(lambda: not objects & known.rows.keys())
    assert read(cluster.place, old) == expected(rows)


def test_trimmed_entries_are_planned_again(cluster: Cluster) -> None:
    rows = values(2_000)
    with cluster.broker() as broker:
        send(broker, "t", rows)
    with cluster.log as log:
        old = planned(log)
    payloads = {row.object_id for part in old for row in part.rows if row.object_id < 0}
    assert payloads
    cluster.trim(-min(payloads))
    assert read(cluster.place, old) == expected(rows)


def test_plan_from_an_old_state_is_made_again(cluster: Cluster) -> None:
    rows = values(2_000)
    with cluster.broker() as broker:
        send(broker, "t", rows)
    with cluster.log as log:
        payloads = {row.object_id for part in planned(log) for row in part.rows}
        cluster.trim(-min(payloads))
        start = Position(time_ms=BASE + 1_500)

        async def resolve() -> dict[tuple[bytes, int], int]:
            subjects = DirectSubscription(topics=("t",)).find(log.log.state)
            return await start.resolve(log.log, subjects, is_committed=True)

        with pytest.raises(MissingObject, match="was trimmed"):
            log.run(resolve())
        assert [*log.run(log.log.plan(resolve)).values()] == [1_500]


def test_damage_is_refused(cluster: Cluster) -> None:
    with cluster.broker(inline_bytes=0) as broker:
        send(broker, "t", values(200))
    [path, *_] = sorted((cluster.folder.parent / "store").rglob("objects/**/*"))
    files = [file for file in path.parent.rglob("*") if file.is_file()] if path.is_dir() else [path]
    for file in files:
        data = bytearray(file.read_bytes())
        data[-20] ^= 1
        file.chmod(0o644)
        file.write_bytes(data)
    told = (
        r"t-0 from offset 0 on: \S+/objects/\S+, byte \d+, offset 0: its CRC-32C .* `rookery fsck`"
    )
    with pytest.raises(Corrupt, match=told):
        read_all(cluster)


@pytest.mark.parametrize(
    ("at", "words"),
    [(32 + 7, "offset 1 where 0 comes next"), (32 + 16, "magic"), (32 + 8, "cut off")],
)
def test_damage_in_a_segment_is_refused(cluster: Cluster, at: int, words: str) -> None:
    with cluster.broker(inline_bytes=0) as broker:
        send(broker, "t", values(2_000))
    cluster.rewrite()
    segment = min((cluster.folder.parent / "store").rglob("*.kfs"))
    data = bytearray(segment.read_bytes())
    data[at] ^= 1
    segment.chmod(0o644)
    segment.write_bytes(data)
    with pytest.raises(Corrupt, match=rf"segment \d+: byte 32, offset 0: .*{words}"):
        read_all(cluster)


def test_planning_lists_nothing_and_takes_few_requests(cluster: Cluster) -> None:
    rows = values(20_000, size=200)
    with cluster.broker(inline_bytes=0) as broker:
        send(broker, "t", rows, each=1_000)
    cluster.rewrite()
    with recorded_reads(cluster) as reads, cluster.log as log:
        ranges = planned(log)
        assert reads.of_segments() == []
        assert read(cluster.place, ranges) == expected(rows)
    assert reads.listed == []
    size = sum(part.size for part in ranges)
    assert len(reads.of_segments()) == sum(len(part.rows) for part in ranges), reads.sizes
    assert size * 0.9 < sum(reads.of_segments()) <= size


def test_time_slice_reads_few_bytes(cluster: Cluster) -> None:
    rows = values(20_000, size=200)
    with cluster.broker(inline_bytes=0) as broker:
        send(broker, "t", rows)
    cluster.rewrite()
    with cluster.log as log:
        full = sum(part.size for part in planned(log))
        ends = {"start": Position(time_ms=BASE + 10_000), "end": Position(time_ms=BASE + 10_200)}
        with recorded_reads(cluster) as reads:
            ranges = planned(log, **ends)
            records = read(cluster.place, ranges)
    assert records == expected(rows)[10_000:10_200]
    assert sum(size for _, size in reads.sizes) <= 0.05 * full


def test_python_twin_reads_the_same(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = values(500)
    with cluster.broker() as broker:
        send(broker, "t", rows[:300], settings={"compression.type": "lz4"})
        send(broker, "t", rows[300:])
    cluster.rewrite()
    compiled = read_all(cluster)
    monkeypatch.setattr(columns, "_columns", columnstwin)
    assert read_all(cluster) == compiled == expected(rows)


def test_planned_range_can_be_pickled(cluster: Cluster) -> None:
    with cluster.broker() as broker:
        send(broker, "t", values(50))
    with cluster.log as log:
        [part] = planned(log)
    copy: PlannedRange = pickle.loads(pickle.dumps(part))
    assert copy == part


def test_read_ends_at_the_requested_offset(cluster: Cluster) -> None:
    with cluster.broker() as broker:
        send(broker, "t", values(1_000))
    cluster.rewrite()
    ends = {
        "start": Position(offsets={"t": {0: 123}}),
        "end": Position(LATEST, offsets={"t": {0: 456}}),
    }
    assert [row.offset for row in read_all(cluster, **ends)] == list(range(123, 456))
