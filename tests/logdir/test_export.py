"""`rookery export`: a real Kafka starts on what we wrote, and nothing is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from rookery.broker.settings import BrokerSettings
from rookery.cluster.events.topicevents import TopicCreated
from rookery.errors import Corrupt
from rookery.formats.logfile.names import FileKind
from rookery.logdir.directory import LogDirectory
from rookery.logdir.exporter.logs import PartitionExporter
from rookery.logdir.partition import PartitionLog
from rookery.model import partition
from rookery.model.topicname import OFFSETS_TOPIC
from rookery.records.recordcodec import BatchSettings, Record, build
from rookery.testing.kafka import KafkaServer
from rookery.testing.kafkadir import MadeDirectory
from rookery.testing.kafkasight import look
from rookery.testing.servedbroker import ServedBroker
from tests.cli.storage import run
from tests.logdir.test_import import answer, assert_same, imported


@pytest.fixture(autouse=True)
def _without_other_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROOKERY_CONFIG", raising=False)


@pytest.fixture
def exported(made: MadeDirectory, tmp_path: Path) -> Iterator[tuple[KafkaServer, Path]]:
    """A Kafka that is to start on the export of an import."""
    answer(imported(made.killed.folder, tmp_path / "data", "--no-verify"))
    home = tmp_path / "kafka"
    folder = home / "node-1" / "data"
    folder.parent.mkdir(parents=True)
    server = KafkaServer(folder=home)
    args = ("--data", str(tmp_path / "data"), "--quiet", "--segment-bytes", "1Mi")
    done = run("export", str(folder), *args, "--json")
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["topics"] == len(made.killed.topics)
    yield server, folder
    server.close()


def test_kafka_starts_on_the_export_and_clients_see_the_same(
    made: MadeDirectory, exported: tuple[KafkaServer, Path]
) -> None:
    server, folder = exported
    directory = LogDirectory.open([folder])
    directory.check()
    assert directory.damage == []
    assert directory.is_clean
    assert len(directory.partitions[partition.TopicPartition("large", 0)].segments) > 2

    server.start()
    sight = look(server, folder, made.killed.cluster_id)

    assert_same(sight, made.killed)
    check_that_it_goes_on(server, sight.topics["large"].partitions[0].high)
    assert server.stop() in {0, 143}
    # We read what Kafka has written after our records.
    log = LogDirectory.open([folder]).partitions[partition.TopicPartition("large", 0)]
    assert log.log_end == sight.topics["large"].partitions[0].high + 1


def check_that_it_goes_on(server: KafkaServer, end: int) -> None:
    """Write after the exported records, transactionally, and read on as an old group."""
    settings = {"bootstrap.servers": server.bootstrap, "log_level": 0}
    producer = Producer({**settings, "enable.idempotence": True})
    producer.produce("large", b"behind")
    assert producer.flush(120) == 0
    transactional = Producer({**settings, "transactional.id": "tx-one"})
    transactional.init_transactions(120)
    transactional.begin_transaction()
    transactional.produce("tx", b"after the move", partition=0)
    transactional.commit_transaction(120)
    consumer = Consumer({**settings, "group.id": "group-a"})
    [place] = consumer.committed([TopicPartition("large", 0)], timeout=120)
    assert place.offset == 700
    assert consumer.get_watermark_offsets(place, timeout=120) == (0, end + 1)
    consumer.close()


def test_existing_folder_is_not_overwritten(made: MadeDirectory, tmp_path: Path) -> None:
    answer(imported(made.stopped.folder, tmp_path / "data", "--topic", "odd", "--no-verify"))
    target = tmp_path / "there"
    target.mkdir()

    done = run("export", str(target), "--data", str(tmp_path / "data"))

    assert done.returncode == 2
    assert "already exists" in done.stderr.decode()
    assert list(target.iterdir()) == []
    nowhere = run("export", str(tmp_path / "x"), "--data", str(tmp_path / "data"), "--topic", "y")
    assert nowhere.returncode == 2


def batch(base: int, size: int = 1000) -> bytes:
    record = Record(None, b"x" * size, (), 1000 + base)
    return build([record], BatchSettings(base_offset=base, partition_leader_epoch=2))


def test_segments_roll_and_have_indexes(tmp_path: Path) -> None:
    writer = PartitionExporter(tmp_path / "t-0", 7, segment_bytes=8000)
    for base in range(7, 60):
        writer.write(batch(base))
    written = writer.finish(bytes(16), [], 60)

    log = PartitionLog(tmp_path / "t-0", partition.TopicPartition("t", 0))
    assert (log.log_start, log.log_end) == (7, 60)
    assert [segment.base_offset for segment in log.segments] == [7, 14, 21, 28, 35, 42, 49, 56]
    assert written.segments == 8
    assert all(segment.positions for segment in log.segments[:-1])
    assert log.damage == []
    assert [header.base_offset for segment in log.segments for header in segment.check()] == [
        *range(7, 60)
    ]


def test_missing_offsets_at_the_end_are_not_reused(tmp_path: Path) -> None:
    writer = PartitionExporter(tmp_path / "t-0", 0)
    writer.write(batch(3))
    writer.finish(bytes(16), [], 50)

    log = PartitionLog(tmp_path / "t-0", partition.TopicPartition("t", 0))
    assert log.log_end == 50
    assert log.segments[-1].path.stat().st_size == 0
    assert log.segments[-1].beside(FileKind.INDEX).exists()


def test_damage_is_not_exported(tmp_path: Path) -> None:
    data = bytearray(batch(0))
    data[-1] ^= 1
    with pytest.raises(Corrupt):
        PartitionExporter(tmp_path / "t-0", 0).write(data)


def test_topic_with_an_internal_name_of_kafka_is_omitted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServedBroker(data, BrokerSettings(durability="os")) as broker:

        async def create() -> None:
            # Brokers refuse such a topic now; older ones made it.
            for name in (OFFSETS_TOPIC, "orders"):
                event = TopicCreated(
                    topic_id=name[:2].encode() * 8, name=name, partitions=1, replication_factor=1,
                    configs=[],
                )  # fmt: skip
                await broker.broker.replica.propose([event])

        broker.do(create())
    folder = tmp_path / "kafka"

    done = run("export", str(folder), "--data", str(data), "--quiet", "--json")

    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    assert (report["topics"], report["left_out"]) == (1, [OFFSETS_TOPIC])
    assert partition.TopicPartition("orders", 0) in LogDirectory.open([folder]).partitions
    chosen = run(
        "export", str(tmp_path / "other"), "--data", str(data), "--quiet", "--topic", OFFSETS_TOPIC
    )
    assert chosen.returncode != 0
    assert OFFSETS_TOPIC in chosen.stderr.decode()
